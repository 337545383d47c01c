# The image of nodes with GPUs: the base image, what trains (requirements/gpu.txt), and vLLM in an
# environment of its own, /opt/vllm (requirements/vllm.txt). From the repository, after the base:
#   docker build -f infra/images/gpu.Dockerfile -t seamlessflow:gpu .
# Needs NVIDIA's driver and container toolkit on the host; CUDA's libraries come with torch.
ARG BASE=seamlessflow:base
FROM ${BASE}
USER 0:0
# Triton compiles its launchers when they are first used.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/gpu.txt requirements/vllm.txt /opt/requirements/
RUN /opt/seamlessflow/bin/pip install --no-cache-dir --require-hashes -r /opt/requirements/gpu.txt
RUN python3 -m venv /opt/vllm \
    && /opt/vllm/bin/pip install --no-cache-dir --require-hashes -r /opt/requirements/vllm.txt
ENV SEAMLESSFLOW_ROLLOUT__VLLM__PYTHON=/opt/vllm/bin/python
USER 1000:1000
