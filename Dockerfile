# Two stages from the scripts that `make setup` and `make install` run: the first builds, the second runs without
# compilers, not as root. It writes in /data and /tmp alone (compose.yaml, docs/how-to/install.md), and in /shared and
# /recordings where several nodes share them (docs/how-to/cluster/compose.yaml).
FROM debian:bookworm-slim AS build
ENV XDG_CACHE_HOME=/opt
WORKDIR /srv/trunkline

# PJSIP and llama.cpp take longest and change least: they are layers of their own, with the files that they depend on.
COPY scripts/apt-mirror.sh scripts/apt-packages.sh scripts/build-pjsip.sh scripts/check-python.sh scripts/config_site.h \
    scripts/fetch-pjproject.sh scripts/packages-build.txt scripts/packages-install.txt scripts/packages-run.txt \
    scripts/pjproject-source.sh scripts/pjproject.env scripts/progress.sh scripts/
RUN scripts/apt-packages.sh build run install && scripts/check-python.sh && scripts/build-pjsip.sh
COPY requirements-llama.lock requirements-llama-build.lock ./
COPY scripts/build-llama.sh scripts/
# The image may run on another processor than the one that builds it.
ENV LLAMA_PROCESSORS=all
RUN scripts/build-llama.sh
COPY . .
# For `trunkline --version`: docker build --build-arg COMMIT=$(git rev-parse --short=12 HEAD)
ARG COMMIT=
RUN if [ -n "$COMMIT" ]; then echo "$COMMIT" >trunkline/commit.txt; fi
RUN scripts/venv.sh cluster && DESTDIR=/stage PREFIX=/usr scripts/install.sh program

FROM debian:bookworm-slim
COPY scripts/apt-packages.sh scripts/progress.sh scripts/packages-run.txt /tmp/scripts/
RUN /tmp/scripts/apt-packages.sh run \
    && rm -rf /tmp/scripts /var/lib/apt/lists/* /root/.cache \
    && useradd --system --home-dir /data --shell /usr/sbin/nologin trunkline \
    && install -d -o trunkline -g trunkline -m 700 /data /data/knowledge /data/sounds /shared /recordings
COPY --from=build /stage/usr/lib/trunkline /usr/lib/trunkline
COPY --from=build /stage/usr/bin/trunkline /usr/bin/trunkline

ENV TRUNKLINE_DATA_DIR=/data
USER trunkline
WORKDIR /data
VOLUME /data
# API, SIP, RTP.
EXPOSE 8080 5060/udp 5060/tcp 10000-19999/udp
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["trunkline"]
CMD ["serve"]
