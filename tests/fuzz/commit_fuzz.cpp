// Fuzzes the marker of the last committed round.
#include "fed/store/run_checkpoint.h"
#include "tests/fuzz/fuzz.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  write("commit.json", resealed(input));
  const Checkpoint checkpoint(folder());
  checkpoint.last();
}
