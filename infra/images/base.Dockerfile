# The image of processes that need no GPU: gateways, manager, scheduler, agents. From the repository:
#   docker build -f infra/images/base.Dockerfile -t seamlessflow:base .
# Python packages are those that requirements/base.txt locks. Add your agent in an image of your own.
ARG PYTHON=python:3.11-slim-bookworm
FROM ${PYTHON} AS made
WORKDIR /opt/seamlessflow
COPY requirements/base.txt requirements/
RUN python3 -m venv . && bin/pip install --no-cache-dir --require-hashes -r requirements/base.txt
COPY pyproject.toml README.md LICENSE ./source/
COPY console ./source/console
COPY consumers ./source/consumers
COPY infra ./source/infra
COPY lab ./source/lab
COPY producers ./source/producers
COPY recorded ./source/recorded
COPY schemas ./source/schemas
COPY scheduler ./source/scheduler
COPY seamlessflow ./source/seamlessflow
COPY trainer ./source/trainer
# What builds the package is in an environment of its own, which is not in the image.
RUN bin/pip install --no-cache-dir --no-deps ./source && rm -r source

FROM ${PYTHON}
COPY --from=made /opt/seamlessflow /opt/seamlessflow
# The working directory has the run's files and the agent; HOME has what is downloaded once, such as
# the jars of an embedded Kafka.
RUN groupadd --gid 1000 seamlessflow \
    && useradd --uid 1000 --gid 1000 --home-dir /home/seamlessflow --create-home seamlessflow \
    && mkdir /run-files && chown 1000:1000 /run-files
ENV PATH=/opt/seamlessflow/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /run-files
USER 1000:1000
CMD ["seamlessflow", "--help"]
