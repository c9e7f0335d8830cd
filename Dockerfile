# The portal as one image for all of its processes. Not built by any test: docs/operations.md
# says what of it was tried, and how.
FROM python:3.11.13-slim-bookworm AS build
WORKDIR /app
COPY requirements/uv.txt requirements/core.txt requirements/
# Hashed locks alone decide what gets in; all of it are wheels, so nothing is compiled.
RUN python -m venv /opt/uv && python -m venv --without-pip /opt/venv \
  && /opt/uv/bin/pip install --no-cache-dir --only-binary :all: --require-hashes \
    -r requirements/uv.txt \
  && /opt/uv/bin/uv pip sync --no-cache --no-build --compile-bytecode --require-hashes \
    --python /opt/venv/bin/python requirements/core.txt
COPY . .
# The library, without its dependencies: the lock above has them.
# `--build-arg RESEARCH=1` adds the policies of evenshare-research.
ARG RESEARCH=
RUN /opt/uv/bin/uv pip install --no-cache --no-deps --offline --python /opt/venv/bin/python \
    ./core ${RESEARCH:+./research}
# Production settings, with values that are for this one command and stay in no layer.
RUN EVENSHARE_MODE=production SECRET_KEY="$(head -c 48 /dev/urandom | base64)" \
    ALLOWED_HOSTS=build.invalid BEHIND_TLS_PROXY=1 REDIS_URL=unix:///none \
    DATABASE_URL=postgres://build@/none \
    /opt/venv/bin/python manage.py collectstatic --noinput \
  && /opt/venv/bin/python -m compileall -q billing deploy portal scheduling tenants

FROM python:3.11.13-slim-bookworm
ARG COMMIT=unknown
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    EVENSHARE_MODE=production EVENSHARE_RUN_DIR=/run/evenshare BIND=0.0.0.0 PORT=8000 \
    BACKUP_DIR=/backups CODE_COMMIT=$COMMIT
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
# The code belongs to root: who breaks into the portal cannot change it.
RUN groupadd --gid 10001 evenshare \
  && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent \
    --shell /usr/sbin/nologin evenshare \
  && install --directory --owner 10001 --group 10001 --mode 0700 /run/evenshare /backups /log-keys /rounds
WORKDIR /app
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=6s --start-period=30s --retries=3 \
  CMD ["python", "-m", "deploy.healthcheck", "web"]
ENTRYPOINT ["/app/deploy/entrypoint.sh"]
CMD ["web"]
