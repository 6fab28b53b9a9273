# The ladder of tests: what `make check` and its smaller and larger rungs run. tests.am holds the lists. This file is
# GNU make's alone; automake needs TESTS to be all tests, or `make check TESTS=...` would know only some.
TESTS = $(core_tests) $(check_PROGRAMS)

# run_rung TESTS: builds what these need and runs them
run_rung = $(MAKE) $(filter $(check_PROGRAMS),$(1)) && \
  $(MAKE) check-TESTS check_PROGRAMS="$(filter $(check_PROGRAMS),$(1))" TESTS="$(1)"

# check-FOLDER, for every folder of src and for kernels: the suites that need it and nothing but what is below it.
folders := $(patsubst $(srcdir)/src/%/,%,$(wildcard $(srcdir)/src/*/)) kernels
suites_of = $(filter $(check_PROGRAMS),$(shell sh $(srcdir)/tests/suites-of $(1) $(srcdir)))
$(addprefix check-,$(folders)): check-%: $(BUILT_SOURCES)
	+@$(call run_rung,$(call suites_of,$*))
.PHONY: $(addprefix check-,$(folders))

# check-quick: all suites, with one case of each kind where there are many, the laws of the sources, three whole runs.
# What takes longest begins first.
check-quick: export RIG_CASES = few
check-quick: all
	+@$(call run_rung,$(filter $(slowest_tests),$(check_PROGRAMS) $(quick_tests)) \
	  $(filter-out $(slowest_tests),$(check_PROGRAMS) $(quick_tests)))
# check-all: all scripts but long_tests, as CI has them. check-faults: those that do harm to runs and files.
check-all: all
	+@$(call run_rung,$(filter-out $(long_tests),$(slowest_tests)) \
	  $(filter-out $(slowest_tests) $(long_tests),$(script_tests) $(check_PROGRAMS)))
check-faults: all
	+@$(call run_rung,$(filter $(slowest_tests),$(fault_tests)) $(filter-out $(slowest_tests),$(fault_tests)))
# check-cases: tests that have more cases than the other rungs try, and long_tests; check-long calls it with LONG.
has_cases = \$$\{LONG|\$$\(cases |getenv\("LONG"\)|rig_cases|cases_of|suite_loop|WAYS_STEP|STAGES_STEP
many_cases = $(shell cd $(srcdir) && grep -lE '$(has_cases)' tests/t_*.c $(script_tests))
check-cases: all
	+@$(call run_rung,$(sort $(long_tests) $(filter $(script_tests) $(check_PROGRAMS),$(many_cases:.c=))))
# check-launched: the scripts that start ranks by mpirun, for another MPI library.
launched = $(shell cd $(srcdir) && grep -lE 'mpi_lib\.sh|mpirun_n' $(script_tests))
check-launched: all
	+@$(call run_rung,$(filter-out $(long_tests),$(launched)))
.PHONY: check-quick check-all check-faults check-cases check-launched
