#include "apps/program.h"
#include "methods/method_registry.h"

namespace evenkeel::methods {
MethodEntry fedit_momentum();
}

int main(int argc, char** argv) {
  evenkeel::methods::add_method(evenkeel::methods::fedit_momentum());
  return evenkeel::apps::run_program(argc, argv);
}
