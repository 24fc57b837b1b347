"""Shared by all tests: one thread each (two cores, two workers), no network, nothing outside the test's own folders."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["RAGEN_WANDB_MODE"] = "disabled"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["DO_NOT_TRACK"] = "1"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["PREFECT_LOGGING_TO_API_ENABLED"] = "false"
