#include "flower/federation/scored_rows.h"

#include <algorithm>
#include <iterator>

#include "base/format/record.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/sealed.h"
#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

struct ScoredPage {
  std::vector<ScoredSet> sets;
  void visit(auto& field) { field("sets", sets); }
};

std::string digest_of(const data::Row& row) {
  constexpr size_t kDigits = 16;  // the digests tell a node's own rows apart
  return sha256(concat(row.instruction, '\n', row.answer, '\n', join(row.references))).substr(0, kDigits);
}

/// Returns the number of rows that are in one of the sets only.
int64_t difference(const ScoredSet& one, const ScoredSet& other) {
  std::vector<std::string> only;
  std::set_symmetric_difference(one.rows.begin(), one.rows.end(), other.rows.begin(), other.rows.end(),
                                std::back_inserter(only));
  return std::ssize(only);
}

}  // namespace

ScoredSet set_of(std::span<const data::Row> rows, const std::string& files) {
  ScoredSet set{.files = files, .rows = {}};
  for (const auto& row : rows) set.rows.push_back(digest_of(row));
  std::sort(set.rows.begin(), set.rows.end());
  return set;
}

ScoredRows::ScoredRows(const fs::path& folder) {
  if (folder.empty()) return;
  make_folders(folder);
  file_ = folder / "scored-rows.json";
  if (!path_exists(file_)) return;
  const Json json = read_sealed(file_);
  sets_ = record::read<ScoredPage>({json, file_.string(), kCheckpoint}).sets;
}

std::string ScoredRows::refusal(const ScoredSet& set, int64_t least) const {
  int64_t known = 0;
  for (const auto& earlier : sets_) {
    if (earlier.files != set.files) continue;
    const auto apart = difference(earlier, set);
    if (apart == 0) return "";
    if (apart < least)
      return concat("the run would score test rows that differ in ", apart,
                    " from those of an earlier run, allowed: ", least, " or more (--min-test-rows)");
    ++known;
  }
  if (known < kMostSets) return "";
  return concat("runs have scored ", known, " different choices of this node's test rows, allowed: ", kMostSets);
}

void ScoredRows::add(const ScoredSet& set) {
  const auto known = [&](const ScoredSet& one) { return one.files == set.files && one.rows == set.rows; };
  if (std::any_of(sets_.begin(), sets_.end(), known)) return;
  sets_.push_back(set);
  if (!file_.empty()) write_sealed(file_, record::write(ScoredPage{sets_}));
}

}  // namespace evenkeel::flower
