#include "apps/program.h"

int main(int argc, char** argv) { return evenkeel::run_program(argc, argv); }
