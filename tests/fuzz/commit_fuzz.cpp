// Fuzzes the marker of the last committed round.
#include "fed/store/run_checkpoint.h"
#include "tests/fuzz/fuzz.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  fuzz::write("commit.json", fuzz::resealed(input));
  const fed::Checkpoint checkpoint(fuzz::folder());
  checkpoint.last();
}
