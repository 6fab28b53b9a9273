# The whole test suite as parts that run beside each other, so that those that wait (for mpirun, for sleeping ranks,
# for downloads) do not keep a core idle. `./quickstart check` starts it; each part is `./quickstart part NAME`,
# writes TAP or test logs, and does not fail here: tests/summary judges.
PARTS = tests sources asan asan-suites tsan tsan-suites torch-install torch torch-skips torch-zoo torch-volumes \
  torch-export distribution asan-runs tsan-runs
all: $(PARTS)
$(PARTS):
	+@./quickstart part $@
# What takes longest begins first.
asan tsan: sources
distribution: asan tsan
torch torch-skips torch-zoo torch-volumes torch-export: torch-install asan tsan
asan-suites asan-runs: asan
tsan-suites tsan-runs: tsan
.PHONY: all $(PARTS)
