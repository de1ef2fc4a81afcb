// Fuzzes a client's metrics in the journal.
#include "fed/store/journal.h"
#include "tests/fuzz/fuzz.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  fuzz::write("3.json", fuzz::resealed(input));
  const fed::RoundJournal journal(fuzz::folder());
  journal.holds(3);
  const auto record = journal.record(3);
  if (record::write(record).dump().empty()) fuzz::finding("a record that cannot be written again", {});
}
