#include "data/file_sets.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <span>

#include "base/plain/files.h"
#include "base/plain/text.h"
#include "data/text_metrics.h"

namespace evenkeel::data {
namespace {

constexpr std::string_view kFamilyName = "files", kTaskPrefix = "files:";

bool is_set_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

/// Combines the files of all clients into one set. Each client still reads its own files with its own settings.
FileSet combined_set(FileSet set, std::span<const ClientFiles> clients) {
  set.held_out = 0;
  for (const auto& client : clients) {
    set.train.insert(set.train.end(), client.train.begin(), client.train.end());
    set.test.insert(set.test.end(), client.test.begin(), client.test.end());
    set.held_out = std::max(set.held_out, client.held_out);
  }
  return set;
}

}  // namespace

void FileSet::resolve(const config::Table& table) const {
  table.check(held_out >= 0 && held_out < 1, "held_out", held_out, "0 or more, less than 1");
  table.check_integer("split_seed", split_seed, 0, limits::kAny);
  for (const auto& pattern : train) check_path_text(pattern, table.full_key("train"));
  for (const auto& pattern : test) check_path_text(pattern, table.full_key("test"));
  std::set<std::string> known;
  for (const auto& option : options) {
    table.check_entry(!option.empty(), "options", "\"\"", "answers that say something");
    table.check_entry(known.insert(strip(option)).second, "options", concat('"', shown(option), "\" twice"),
                      "every answer once");
  }
  table.check(options.empty() || score == Scoring::kChoice, "options", "given", "with score = \"choice\" only");
}

void FilesConfig::resolve(const config::Table& table) const {
  FileSet::resolve(table);
  if (!sets.empty()) {
    table.check(train.empty(), "train", "given", "files in the sets alone, where there are sets with names");
    table.check(test.empty(), "test", "given", "files in the sets alone, where there are sets with names");
  }
  for (const auto& [name, set] : sets) {
    EK_CHECK(is_set_name(name), kConfig, table.full_key(name), ": the name of a set is of letters, digits, - and _",
             table.place_of(name));
    EK_CHECK(!set.train.empty() || !set.test.empty(), kConfig, table.full_key(name), " names no files: train or test",
             table.place_of(name));
  }
}

std::map<std::string, FileSet> FilesConfig::by_task() const {
  std::map<std::string, FileSet> all;
  for (const auto& [name, set] : sets) all.emplace(concat(kTaskPrefix, name), set);
  if (!clients.empty())
    all.emplace(kFamilyName, combined_set(*this, clients));
  else if (!train.empty() || !test.empty())
    all.emplace(kFamilyName, *this);
  return all;
}

}  // namespace evenkeel::data
