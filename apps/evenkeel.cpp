#include "apps/program.h"
#include "base/wait_policy.h"

int main(int argc, char** argv) {
  evenkeel::let_waiting_threads_sleep(argv);
  evenkeel::run_and_exit(argc, argv);
}
