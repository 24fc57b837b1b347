# syntax=docker/dockerfile:1.7
# Everything of the pipeline on CPUs: docker build -f infra/images/cpu.Dockerfile -t starpo:0.1.0-cpu .
FROM python:3.11.14-slim-bookworm
ARG TORCH=2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1 \
    DO_NOT_TRACK=1 PREFECT_SERVER_ANALYTICS_ENABLED=false RAY_USAGE_STATS_ENABLED=0

# tini ends a container's processes with it; KubeRay's probes call wget. Debian keeps only the newest version of each.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home starpo

# torch first: otherwise pip would pick the build with gigabytes of CUDA.
WORKDIR /app
RUN pip install --index-url "${TORCH_INDEX}" "torch==${TORCH}"
# Dependencies first: they change less often than the code.
COPY pyproject.toml constraints.txt ./
RUN touch README.md \
    && sed "s/^torch==.*/torch==${TORCH}/" constraints.txt >/tmp/constraints.txt \
    && pip install -c /tmp/constraints.txt ".[deepspeed,lora,openai,ray]"
COPY . .
RUN pip install --no-deps -e .

USER 1000
ENV HOME=/home/starpo PREFECT_HOME=/home/starpo/.prefect STARPO_STATE_DIR=/home/starpo/state
HEALTHCHECK --interval=10s --timeout=10s --start-period=90s --retries=6 CMD ["/app/infra/images/start", "health"]
ENTRYPOINT ["tini", "--", "/app/infra/images/start"]
CMD ["starpo", "--help"]
