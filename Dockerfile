# Untested: this image was never built.
#   docker build --build-arg PIP_EXTRA_INDEX_URL=ADDRESS -t scarlet .
#   docker run --rm -v "$PWD/runs:/home/scarlet/runs" scarlet compare scarlet dsfl
# ADDRESS is PyTorch's index of builds for the CPU; pip prefers 2.13.0+cpu, which agrees with torch==2.13.0 in
# constraints.txt. Without it, pip may fetch a build for CUDA. The user in the container has the number 1000.
FROM python:3.11-slim

ARG PIP_EXTRA_INDEX_URL=
WORKDIR /opt/scarlet
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt .

RUN useradd --create-home --uid 1000 scarlet
USER scarlet
WORKDIR /home/scarlet
RUN mkdir runs
ENTRYPOINT ["scarlet"]
CMD ["--help"]
