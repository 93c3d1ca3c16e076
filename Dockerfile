# The steps are the Makefile's own: `make clean-room` runs the same ones in a clean environment without Docker.
#   docker build -t rlflow .            docker run --rm -v "$PWD:/models" rlflow optimize /models/in.onnx -o /models/out.onnx
FROM python:3.11-slim

RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ make \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/rlflow
COPY . .
RUN make install PYTHON=python3
RUN make demo PYTHON=python3

ENV PATH=/opt/rlflow/.venv/bin:$PATH
ENTRYPOINT ["rlflow"]
CMD ["--help"]
