/// \file  Lists the files and folders of a run folder. Code that writes into the folder takes their names from
/// run_file(). Other commands refuse to write to any of them (apps/output_paths.h).
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace evenkeel::fed {

/// Names in a run folder (docs/run-folder.md). report.html is not among them, because it can be made again.
inline constexpr auto kRunFiles = std::to_array<std::string_view>({".lock",
                                                                   ".unfinished",
                                                                   "config.toml",
                                                                   "manifest.json",
                                                                   "partition.json",
                                                                   "rows",
                                                                   "chat_template.jinja",
                                                                   "rounds.jsonl",
                                                                   "evaluations.jsonl",
                                                                   "evaluating.jsonl",
                                                                   "items",
                                                                   "superseded.jsonl",
                                                                   "missing_scores.jsonl",
                                                                   "best.json",
                                                                   "best",
                                                                   "checkpoint",
                                                                   "adapter",
                                                                   "tensorboard",
                                                                   "federation",
                                                                   "privacy",
                                                                   "cluster.jsonl",
                                                                   "log.txt"});

constexpr bool is_run_file(std::string_view name) {
  return std::find(kRunFiles.begin(), kRunFiles.end(), name) != kRunFiles.end();
}

/// Returns `name`. A name that kRunFiles lacks does not compile.
/// Example:  const auto file = folder / run_file("rounds.jsonl");
consteval std::string_view run_file(std::string_view name) {
  if (!is_run_file(name)) throw "kRunFiles lacks this name";
  return name;
}

}  // namespace evenkeel::fed
