#include "apps/program.h"

int main(int argc, char** argv) { evenkeel::run_and_exit(argc, argv); }
