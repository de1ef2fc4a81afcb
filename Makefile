# The commands of the README. Thin: tools/setup installs, CMake presets build, ctest tests.
#   make demo         install what is missing, build, run UB-SMoE and FedIT side by side on the built-in model
#   make test         the same set-up, then every test; EVENKEEL_NIGHTLY=1: whole sweeps where it tries a sample otherwise
#   make test-slow    more of the cluster and of federations: every kill, frozen rank, broken cable, launcher and method
#   make build        the program at build/evenkeel
#   make gpu          build/evenkeel-gpu: the same program with a CUDA build of torch in .venv-gpu (5 GB), for NVIDIA GPUs
#   make wheel        dist/evenkeel_moe-….whl: program and libraries for Python's pip
#   make test-debug   unit tests under AddressSanitizer and UndefinedBehaviorSanitizer, of all rooms or of ROOMS="base lora"
#   make fuzz         fuzz targets under both, MINUTES=20 each       make fuzz-smoke  ten seconds each
#   make fuzz-replay  the inputs that are known, once each
#   make bench        micro-benchmarks        make bench-peers  a training step and the tokenizer beside their peers
#   make site         the documentation as a site with search, at build-site/site/index.html
#   make paper-small  the small counterparts of the paper's tables, in runs/paper-small (docs/paper-tables.md)
#   make format       rewrites the sources in the project's style
JOBS ?= $(shell nproc)
PYTHON_V4 := .venv-v4/bin/python
NINJA := tools/ninja -j $(JOBS)
SOURCES = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh' '*.inc' '*.js')

.PHONY: demo gpu wheel test test-slow test-debug fuzz fuzz-smoke fuzz-replay build build-all build-sanitized bench bench-smoke bench-peers format format-check floors sizes prose words clean paper-small
.DEFAULT_GOAL := build

build: build/build.ninja
	@$(NINJA) -C build evenkeel

# EVENKEEL_CUDA_TORCH may name the folder of an unpacked CUDA build of torch, which is then used instead.
gpu: build
	@tools/setup gpu

wheel: build
	@tools/wheel

build-all: build/with-tests
	@$(NINJA) -C build

# Fresh run folders, so that the demo can be repeated.
demo: build
	@rm -rf runs/demo-fedit runs/demo-ub-smoe
	@build/evenkeel demo --full --out runs

# Tests wait for peers and deadlines half of their time: two more run than there are processors.
test: build-all
	@OMP_NUM_THREADS=1 ctest --test-dir build -j $$(($(JOBS) + 2)) --progress --output-on-failure --no-tests=error

# Those that a change of the cluster or of the federation's wire should be tried on, and that make test leaves out for time.
test-slow: build-all
	@EVENKEEL_SLOW=1 OMP_NUM_THREADS=1 PYTEST_ADDOPTS="-k 'test_cluster or test_federation or test_operator_faults or test_wire or test_federated_run'" \
	  ctest --test-dir build -R '^(e2e\.[0-9]|flower)' --progress --output-on-failure --no-tests=error

# All rooms, or those that are named.
ROOMS ?=
empty :=
space := $(empty) $(empty)
UNIT_TESTS = $(if $(ROOMS),$(ROOMS:%=%_test),unit_tests)
build-sanitized: build-debug/build.ninja
	@$(NINJA) -C build-debug $(UNIT_TESTS) fuzz_targets

test-debug: build-debug/build.ninja
	@$(NINJA) -C build-debug $(UNIT_TESTS)
	@tools/sanitized ctest --test-dir build-debug -R '^unit\.($(or $(subst $(space),|,$(strip $(ROOMS))),.*))_test\.' -j $(JOBS) \
	  --progress --output-on-failure --no-tests=error

MINUTES ?= 20
fuzz: build-fuzz
	@JOBS=$(JOBS) tools/fuzz $$(( $(MINUTES) * 60 )) $(TARGETS)

fuzz-smoke: build-fuzz
	@JOBS=$(JOBS) tools/fuzz 10

fuzz-replay: build-fuzz
	@JOBS=$(JOBS) tools/fuzz replay

.PHONY: build-fuzz
build-fuzz: build-debug/build.ninja
	@$(NINJA) -C build-debug fuzz_targets

bench: build-all
	@for program in build/*_bench; do $$program || exit $$?; done

bench-smoke: build-all
	@for program in build/*_bench; do \
	  echo "bench smoke: $$program"; $$program --benchmark_min_time=0.001 --benchmark_filter=-olmoe_ >/dev/null || exit $$?; done

bench-peers: build-all
	@$(PYTHON_V4) bench/peers/train_step.py
	@if [ -n "$$EVENKEEL_DATA" ]; then $(PYTHON_V4) bench/peers/tokenizer.py \
	  --tokenizer "$$EVENKEEL_DATA/tokenizer/allenai_gpt-neox-olmo-dolma-v1_5.json" \
	  "$$EVENKEEL_DATA/gutenberg/middlemarch.txt" "$$EVENKEEL_DATA/wikitext-2/test.txt"; \
	  $(PYTHON_V4) bench/peers/generate.py --data "$$EVENKEEL_DATA/commonsense" \
	  --tokenizer "$$EVENKEEL_DATA/tokenizer/allenai_gpt-neox-olmo-dolma-v1_5.json"; \
	else echo "no EVENKEEL_DATA: tokenizer and generation are not compared"; fi

format:
	@clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run -Werror $(SOURCES)

floors:
	@python3 tools/floors.py

sizes:
	@python3 tools/sizes.py

words:
	@python3 tools/words.py

prose:
	@python3 tools/prose.py && python3 bench/tables.py --check

clean:
	@rm -rf build build-debug

# One study after the other; what fails is tried again by the next call. TeleQuAD needs a model that is made first.
PAPER_SMALL = commonsense mechanisms rho phi-range candidates preserved homogeneous-k1 homogeneous-k2 homogeneous-k4 \
  homogeneous-k8 dense uniform-32 long-tail-32 reverse-long-tail-32 $(if $(wildcard models/small-olmoe),telequad-iid telequad-non-iid)
paper-small: build
	@failed=; for study in $(PAPER_SMALL); do \
	  build/evenkeel study configs/paper/small/$$study.toml --out runs/paper-small/$$study --jobs $(JOBS) --resume || failed="$$failed $$study"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

.PHONY: site
site: build
	@tools/setup site
	@python3 tools/site_pages.py

.PHONY: setup-build setup-test
setup-build:
	@tools/setup build
setup-test:
	@tools/setup test

# Configured once; ninja reconfigures by itself when a CMake file or the list of sources changes. The program needs fewer packages
# than its tests: the same folder is configured again, with tests, for the first command that needs them.
configure = echo "configuring $(2)/"; cmake --preset $(1) >$(2)-configure.log || { cat $(2)-configure.log; exit 1; }; rm -f $(2)-configure.log
build/build.ninja: | setup-build
	@$(call configure,program,build)
build/with-tests: | setup-test
	@$(call configure,release,build); touch $@
build-debug/build.ninja: | setup-test
	@$(call configure,debug,build-debug)
