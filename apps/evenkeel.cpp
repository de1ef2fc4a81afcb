#include "apps/program.h"
#include "base/system/process.h"

int main(int argc, char** argv) {
  evenkeel::settle_process(argv);
  evenkeel::apps::run_and_exit(argc, argv);
}
