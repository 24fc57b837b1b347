"""The stages, one per file: each builds its work from settings and keys (`ragen.runs.work`) and defines how to do it.

loop             the loops over the stages, and what walks them: training, replay, plans, verification, forks
warm_start       (configuration) -> checkpoint; `first_checkpoint` has its kinds of policy
curriculum       curriculum, selections -> curriculum: shares of the environment's parts
rollout          checkpoint -> turns
reward           turns -> rewards
variance_filter  turns, rewards -> selection
teacher          checkpoint, turns -> teacher_logprobs, metrics
probe            checkpoint, turns -> metrics
diagnose         turns, rewards, selection -> metrics
gradient_probe   checkpoint, turns, rewards, selection -> metrics
objectives       checkpoint, turns, rewards, selection -> metrics
credit           checkpoint, turns, rewards, selection -> credits
credit_estimates  checkpoint, turns, rewards, selection -> credit_estimates
update           checkpoint, turns, rewards, selection, teacher_logprobs, credits -> checkpoint, samples, metrics
evaluate         checkpoint -> episodes, metrics
compare          two updates on one rollout -> metrics
held_out         initial states that training never starts from
progress         the state that a run writes while it works
incident         turns of a healthy and of the alarming iteration -> incident
"""
