"""Stages done again from what is stored. All of it works on `ragen.work.Work`. Begin with `verify.verifier`.

verify  does a stage give again what is stored?
replay  reward, filter and update of stored rollouts with other settings
derive  a dropped checkpoint, by the updates that made it, each proved by its digest
"""
