#include "apps/program.h"
#include "base/system/process.h"

int main(int argc, char** argv) {
  evenkeel::settle_process(argv);
  evenkeel::run_and_exit(argc, argv);
}
