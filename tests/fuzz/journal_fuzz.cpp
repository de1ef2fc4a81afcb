// Fuzzes a client's metrics in the journal.
#include "fed/store/journal.h"
#include "tests/fuzz/fuzz.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  write("3.json", resealed(input));
  const RoundJournal journal(folder());
  journal.holds(3);
  const auto record = journal.record(3);
  if (record::write(record).dump().empty()) finding("a record that cannot be written again", {});
}
