#include "fed/run/stored_records.h"

#include <cstddef>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "fed/store/run_files.h"

namespace evenkeel::fed {
namespace {

SealedLines numbered(SealedLines lines) {
  for (size_t i = 0; i < lines.lines.size(); ++i) {
    const auto& line = lines.lines[i];
    const auto round = line.view().at("round").integer();
    if (round == static_cast<int64_t>(i) + 1) continue;
    lines.damage = Error(kCheckpoint, concat(line.place, ": is of round ", round, ", expected ", i + 1));
    lines.lines.resize(i);
    break;
  }
  return lines;
}

}  // namespace

SealedLines read_rounds(const fs::path& folder) {
  return numbered(read_sealed_lines(folder / run_file("rounds.jsonl")));
}

SealedLines read_evaluations(const fs::path& folder) {
  return read_sealed_lines(folder / run_file("evaluations.jsonl"));
}

std::vector<ItemRecord> read_items(const fs::path& folder, int64_t round) {
  std::vector<ItemRecord> items;
  const auto lines = read_sealed_lines(items_file(folder, round));
  for (const auto& line : lines.whole().lines) items.push_back(record::read<ItemRecord>(line.view()));
  return items;
}

fs::path items_file(const fs::path& folder, int64_t round) {
  return folder / run_file("items") / concat("round-", round, ".jsonl");
}

}  // namespace evenkeel::fed
