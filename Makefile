# Only Python 3.11+ (with its venv module) and make need to be there.
# `make run` and `make test` are the two commands to know.
PYTHON ?= python3
RUN = .venv/bin/python
# Our code is compiled once and not by every process of a run, wherever that is switched off.
export PYTHONDONTWRITEBYTECODE =

.PHONY: catalogs fields run run-slurm test test-rest test-fast lint bench reproduce soak mutate clean lock record core demo dev

run: demo
	@exec $(RUN) manage.py up

# Beside it a Slurm cluster on this host, whose packages of Debian must be there.
run-slurm: demo
	@DEMO_SLURM=1 exec $(RUN) manage.py up

# What a change should pass; tests/rest.py says what is left to `make test-rest`. Spread over
# processes by tests/spread.py; `ARGS=-n0` keeps all in one, `ARGS=<paths>` runs all of them.
test: dev
	@$(RUN) -m pytest -n auto --tier=test --hypothesis-profile=quick $(ARGS)

# All that `make test` leaves out, and properties with three times as many examples.
test-rest: dev
	@$(RUN) -m pytest -n auto --tier=rest --hypothesis-profile=ci $(ARGS)

# Those of `make test` that want no server, no browser, no process tree.
test-fast: dev
	@$(RUN) -m pytest -n auto --tier=fast --hypothesis-profile=quick $(ARGS)

lint: dev
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@.venv/bin/djangofmt --check templates
	@.venv/bin/djangofmt --quiet check templates
	@$(RUN) -m mypy
	@$(RUN) -m pytest -q tests/architecture

bench: dev
	@$(RUN) -m benchmarks $(ARGS)

# Which claims of the papers hold on public data: `ARGS=--list` names the parts and their time.
reproduce: dev
	@$(RUN) -m evenshare_research.reproduce $(ARGS)

soak: dev
	@$(RUN) -m pytest -m soak --hypothesis-profile=soak $(ARGS)

# Change the code and see whether a test fails: `ARGS="fence apply --size 40 --seed 1"`.
mutate: dev
	@$(RUN) -m tests.mutants.mutate $(ARGS)

# `core` is what a site installs, `demo` adds servers, `dev` all that tests and benchmarks need.
core demo dev:
	@$(PYTHON) requirements/install.py $@

# Resolve the locks anew. No index address may get into them. setproctitle, which only the command
# of mutmut needs, would have celery write over the command lines by which tests find processes.
# pandas is for OR-Tools' CP-SAT, which only tests and `reproduce` use.
# At the end: what is more than a release behind.
lock: dev
	@for name in uv core demo dev; do \
	  test $$name = dev && without=setproctitle || without=pandas; \
	  $(RUN) -m uv pip compile -q --upgrade --generate-hashes --universal --python-version 3.11 \
	    --no-emit-package $$without --no-emit-index-url \
	    --custom-compile-command "make lock" \
	    requirements/$$name.in -o requirements/$$name.txt || exit 1; \
	done
	@! grep -iE '^--|https?:' requirements/*.txt
	@$(RUN) requirements/behind.py

# The client is installed apart: its table of a job's fields and its types of answers are copies.
fields: dev
	@$(RUN) -m scheduling.requests.client_table > client/src/evenshare/cli/job_fields.py
	@$(RUN) -m portal.site.client_answers > client/src/evenshare/sdk/answers.py

# The REST API's recorded answers, after an intended change. Each step reads what the last one wrote.
record: dev
	@export EVENSHARE_RECORD=1; \
	$(RUN) -m pytest -q -n0 tests/functional/test_rest_corpus.py && \
	$(RUN) -m pytest -q -n0 tests/unit/portal/test_api_examples.py -k recorded_answers && \
	$(RUN) -m pytest -q -n0 tests/functional/test_rest_description.py

# The translations of pages: new texts are added, unused ones removed (docs/translation.md).
catalogs: dev
	@$(RUN) -m portal.site.catalogs

# The demo's data in .data/ stays; delete that folder by hand to start anew.
clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
