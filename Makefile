# make test   format, lint, types, tests            make demo   convert an example, and prove the result
# make docs   docs/rules.md from the rules          make goldens   rewrite the fixtures' goldens
# make rule CODE=AD3xx NAME=what_it_does   a new rule to fill in
# make fixtures  run every fixture at all its world sizes
# make compare COMMIT=main   what a change does to all that `pytest -p tools.compare` has kept
# make faults  does verify find wrong conversions?   make alarms   does it accept right ones? (hours, resumable)
# make endings  do converted scripts end with 0, 1,000 times on 2 ranks?
# make cluster  two nodes and a Slurm on this machine: wants root, iproute2 and Debian's slurm-wlm
# make check-faults  does check find faults in scripts that distribute themselves, by reading? (benchmarks/check_faults.md)
# make check-repositories [CHECKOUTS=folder]  what check says of public repositories that distribute themselves
# make overhead  what its probes cost              make combinations  convert and verify scripts put together at random
# make bench-editor  how soon findings stand in the editor
# make expert  collectives, bytes and samples of a step, beside scripts that were distributed by hand
# make bench  speed against other tools             make robustness   convert every Python file there is
# make plan-validation  what plans say beside published tables and measured memory
# make ddp-bench  projects for one GPU: who makes them train on several ranks, and rightly?
# make site   the documents as a website in site/   make pictures   docs/pictures from what commands say
# make release-check   can this be released?   make matrix   other Pythons and torches
# make bench-convert [CHECKOUTS=folder]  speed of convert, how it grows, and of public repositories checked out there

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TESTERS ?= $(shell $(PYTHON) -c "import os; print(len(os.sched_getaffinity(0)) + 1)" 2>/dev/null || echo auto)
BIN = $(VENV)/bin
INSTALLED = $(VENV)/installed

DDP_BENCH_PEERS = $(VENV)/ddp_bench

.PHONY: compare expert bench-editor check-faults check-repositories test black ruff mypy demo docs goldens fixtures rule bench bench-convert ddp-bench plan-validation faults alarms endings cluster overhead combinations robustness clean pictures site release-check matrix
.DEFAULT_GOAL := test

test: $(INSTALLED)
	@$(MAKE) --no-print-directory --jobs 2 mypy black ruff
	@echo "== pytest"
	@$(BIN)/python -m pytest -m "not slow and not cluster" -n $(TESTERS) --dist worksteal --session-timeout=3300

black: $(INSTALLED)
	@echo "== black"
	@$(BIN)/black --check --quiet . || { $(BIN)/black --check .; exit 1; }

ruff: $(INSTALLED)
	@echo "== ruff"
	@$(BIN)/ruff check --quiet .

mypy: $(INSTALLED)
	@echo "== mypy"
	@$(BIN)/mypy

$(INSTALLED): pyproject.toml requirements-dev.txt
	@echo "== making $(VENV) (torch first: a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation -e .
	@touch $@

demo: $(INSTALLED)
	@echo "== 1. examples/train.py trains on one device. What changes for several:"
	@$(BIN)/autodist convert examples/train.py --diff --quiet
	@echo "== 2. writing it to examples/train_ddp/"
	@$(BIN)/autodist convert examples/train.py --output examples/train_ddp/ --force
	@echo "== 3. running the original in one process and the conversion on 2 ranks, and comparing every step"
	@$(BIN)/autodist verify examples/train.py examples/train_ddp/train.py --nproc 2 --workdir examples

docs: $(INSTALLED)
	@$(BIN)/python -m tools.docs
	@echo "docs/rules.md and docs/guides/ddp.md are up to date"

goldens: $(INSTALLED)
	@$(BIN)/python -m pytest -n auto tests/fixtures/test_goldens.py --update

fixtures: $(INSTALLED)
	@$(BIN)/python -m pytest tests/fixtures/test_fixtures_run.py -m "slow or not slow"

compare: $(INSTALLED)
	@$(BIN)/python -m tools.compare $(COMMIT)

rule: $(INSTALLED)
	@$(BIN)/python -m tools.new_rule "$(CODE)" "$(NAME)"

check-faults: $(INSTALLED)
	@$(BIN)/python -m benchmarks.check_faults

check-repositories: $(INSTALLED)
	@$(BIN)/python -m benchmarks.check_repositories $(if $(CHECKOUTS),--checkouts "$(CHECKOUTS)")

bench: $(INSTALLED)
	@test -x $(VENV)/peers/bin/torchfix || $(PYTHON) -m venv $(VENV)/peers
	@$(VENV)/peers/bin/pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	@$(BIN)/python -m benchmarks.speed --peers $(VENV)/peers/bin

bench-convert: $(INSTALLED)
	@$(BIN)/python -m benchmarks.speed converting sweeping repositories --rounds 3 $(if $(CHECKOUTS),--checkouts "$(CHECKOUTS)")

expert: $(INSTALLED)
	@$(BIN)/python -m benchmarks.expert

bench-editor: $(INSTALLED)
	@$(BIN)/python -m benchmarks.editor

ddp-bench: $(INSTALLED)
	@test -d $(DDP_BENCH_PEERS)/accelerate || $(BIN)/pip install --quiet --disable-pip-version-check --no-deps \
		--target $(DDP_BENCH_PEERS) -r benchmarks/ddp_bench/requirements.txt
	@PYTHONPATH=$(DDP_BENCH_PEERS) $(BIN)/python -m benchmarks.ddp_bench

plan-validation: $(INSTALLED)
	@$(BIN)/python -m benchmarks.plan_validation
	@$(BIN)/python -m benchmarks.plan_memory

faults: $(INSTALLED)
	@$(BIN)/python -m benchmarks.verify_faults

alarms: $(INSTALLED)
	@$(BIN)/python -m benchmarks.verify_false_alarms --jobs 2 --results benchmarks/alarms.csv

endings: $(INSTALLED)
	@$(BIN)/python -m benchmarks.endings

cluster: $(INSTALLED)
	@$(BIN)/python -m pytest -m cluster tests

overhead: $(INSTALLED)
	@$(BIN)/python -m benchmarks.verify_overhead

combinations: $(INSTALLED)
	@$(BIN)/python -m benchmarks.combinations

robustness: $(INSTALLED)
	@$(BIN)/python -m pytest tests/cli/test_robustness.py -m slow

pictures: $(INSTALLED)
	@$(BIN)/python -m tools.pictures
	@echo "docs/pictures are up to date"

site:
	@test -x $(VENV)/site/bin/mkdocs || $(PYTHON) -m venv $(VENV)/site
	@$(VENV)/site/bin/pip install --quiet --disable-pip-version-check "mkdocs-material>=9.5,<10"
	@NO_MKDOCS_2_WARNING=1 $(VENV)/site/bin/mkdocs build --quiet --strict
	@echo "the site is in site/"

release-check: $(INSTALLED)
	@test -x $(VENV)/release/bin/twine || $(PYTHON) -m venv $(VENV)/release
	@$(VENV)/release/bin/pip install --quiet --disable-pip-version-check build check-wheel-contents twine "tomli; python_version < '3.11'"
	@$(VENV)/release/bin/python -m tools.release

matrix:
	@test -x $(VENV)/matrix/bin/tox || $(PYTHON) -m venv $(VENV)/matrix
	@$(VENV)/matrix/bin/pip install --quiet --disable-pip-version-check tox
	@$(VENV)/matrix/bin/tox

clean:
	@rm -rf $(VENV) .tox build dist site *.egg-info examples/train_ddp
