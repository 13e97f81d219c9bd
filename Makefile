# Two commands matter: "make demo" trains a small GPT and writes text with it, "make test" runs every
# test. Both install what is missing (with WEFT_INSTALL=0 they only name it) and build into build/
# what is out of date.

BUILD := build
JOBS := $(shell nproc)
# ccache keeps nothing that was compiled with precompiled headers.
CCACHE := $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON)
SOURCES = $(shell git ls-files '*.h' '*.cpp' '*.cu')

.PHONY: help demo test soak bench build program install-deps format lint clean gpu-test gpu-bench

help:
	@echo "make demo    build, train a small character GPT on this repository's text, write a sample"
	@echo "make test    build and run every test"
	@echo "make bench   measure training steps against PyTorch on this machine (bench/README.md)"
	@echo "make soak    kill and resume a run 1000 times"
	@echo "make program build build/weft"
	@echo "make build   build build/weft and the tests"
	@echo "make gpu-test   build and run what needs an NVIDIA GPU"
	@echo "make gpu-bench  Weft against PyTorch on that GPU"
	@echo "make lint    check format, include layers and style"
	@echo "make format  rewrite sources with clang-format"
	@echo "make clean   remove $(BUILD)/"

demo: program
	@scripts/demo.sh $(BUILD)/weft

test: build
	@cd $(BUILD) && ctest --output-on-failure --no-tests=error -j $(JOBS)

bench: program
	@bench/run.sh $(BUILD)/weft

soak: build
	@WEFT_KILL_CYCLES=1000 $(BUILD)/tests/cli/cli_kill_cycles_test

gpu-test:
	@scripts/gpu_test.sh

gpu-bench:
	@scripts/gpu_bench.sh

build: $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS)

program: $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target weft

# Ninja configures again by itself when a CMake file changes.
$(BUILD)/build.ninja: | install-deps
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release $(CCACHE)

install-deps:
	@scripts/install_deps.sh

format:
	@clang-format -i $(SOURCES)

lint:
	@scripts/check_format.sh
	@scripts/check_layers.sh
	@scripts/check_style.sh

clean:
	@rm -rf $(BUILD)
