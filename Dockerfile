# Two stages: the first compiles, the second has neither a compiler nor root. Nothing is measured here: prices are those of the machine that
# runs the container. `make clean-room` runs the same make steps without Docker.
#
#   docker build -t rlflow .                                          with torch: --build-arg EXTRAS=eqsat,prove,report,reproduce,rl,torch
#   docker run --rm -v "$PWD:/models" rlflow optimize /models/in.onnx -o /models/out.onnx
#   docker run --rm rlflow make reproduce-quick
#
# The base is named by its tag, not by a digest: no registry of images could be asked where this file was written, and a digest that nobody
# looked up would be worse than none. `make pin-base` asks one and writes the digest into the next line; commit it, and the same image is built again.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG EXTRAS=eqsat,prove,report,reproduce
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ make \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/rlflow
COPY . .
RUN make wheelhouse PYTHON=python3 EXTRAS_OF="${EXTRAS}"

FROM ${BASE}
ARG EXTRAS=eqsat,prove,report,reproduce
RUN apt-get update \
 && apt-get install --yes --no-install-recommends make \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 rlflow \
 && install --directory --owner=rlflow /opt/rlflow /opt/rlflow/build /models /home/rlflow/.cache /home/rlflow/.cache/rlflow
USER rlflow
WORKDIR /opt/rlflow
COPY --from=build --chown=rlflow /opt/rlflow/Makefile /opt/rlflow/constraints.txt /opt/rlflow/pyproject.toml /opt/rlflow/setup.py ./
COPY --from=build --chown=rlflow /opt/rlflow/reproduce ./reproduce
COPY --from=build --chown=rlflow /opt/rlflow/substitutions ./substitutions
COPY --from=build --chown=rlflow /opt/rlflow/tests ./tests
COPY --from=build --chown=rlflow /opt/rlflow/.ci/entrypoint ./.ci/entrypoint
RUN --mount=from=build,source=/opt/rlflow/build/wheelhouse,target=/opt/rlflow/build/wheelhouse \
    make install-wheelhouse PYTHON=python3 EXTRAS_OF="${EXTRAS}"
ENV PATH=/opt/rlflow/.venv/bin:$PATH
ENTRYPOINT ["/opt/rlflow/.ci/entrypoint"]
CMD ["--help"]
