// The program evenkeel with the families of other_families.h.
#include "apps/program.h"
#include "other_families.h"

int main(int argc, char** argv) {
  evenkeel::add_other_families();
  return evenkeel::apps::run_program(argc, argv);
}
