# syntax=docker/dockerfile:1.7
# The pipeline with CUDA and vLLM: docker build -f infra/images/gpu.Dockerfile -t starpo:0.1.0-gpu .
# CUDA's libraries come with torch's wheels; the driver is the host's (NVIDIA container toolkit).
FROM python:3.11.14-slim-bookworm
ARG TORCH=2.13.0
ARG TORCH_INDEX=https://pypi.org/simple
ARG VLLM=vllm==0.32.0
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1 \
    DO_NOT_TRACK=1 PREFECT_SERVER_ANALYTICS_ENABLED=false RAY_USAGE_STATS_ENABLED=0 VLLM_NO_USAGE_STATS=1 \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

# tini ends a container's processes with it; KubeRay's probes call wget; triton compiles with gcc while it runs.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ libc6-dev tini wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home starpo

WORKDIR /app
RUN pip install --index-url "${TORCH_INDEX}" "torch==${TORCH}"
# Dependencies first: they change less often than the code.
COPY pyproject.toml constraints.txt ./
RUN touch README.md \
    && sed "s/^torch==.*/torch==${TORCH}/" constraints.txt >/tmp/constraints.txt \
    && pip install -c /tmp/constraints.txt ".[deepspeed,lora,openai,ray]"
COPY . .
# vLLM needs another fastapi than Prefect, hence an environment of its own, where the pipeline looks for it (docs/vllm.md).
RUN pip install --no-deps -e . && VLLM="${VLLM}" infra/vllm/make-env .venv-vllm

USER 1000
ENV HOME=/home/starpo PREFECT_HOME=/home/starpo/.prefect STARPO_STATE_DIR=/home/starpo/state
HEALTHCHECK --interval=10s --timeout=10s --start-period=90s --retries=6 CMD ["/app/infra/images/start", "health"]
ENTRYPOINT ["tini", "--", "/app/infra/images/start"]
CMD ["starpo", "--help"]
