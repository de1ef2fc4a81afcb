#include "fed/store/run_request.h"

#include <map>
#include <set>
#include <utility>

#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "fed/config/config_paths.h"

namespace evenkeel::fed {
namespace {

/// Replaces the requested template by the run's copy if the file has not changed or does not exist any more.
void leave_copy_to_run(std::string& asked, const std::string& run) {
  asked = expand_data_path(asked, "data.chat_template").string();
  if (asked.empty() || run.empty()) return;
  if (!path_exists(asked) || read_file(asked) == read_file(run)) asked = run;
}

std::set<std::string, std::less<>> keys_of(std::span<const ChangedKey> changes) {
  std::set<std::string, std::less<>> keys;
  for (const auto& change : changes) keys.insert(change.key);
  return keys;
}

/// Returns the text of the same file for every path of an existing file, also of a link to it.
std::vector<std::string> canonical(std::vector<std::string> paths) {
  for (auto& path : paths) {
    std::error_code gone;
    if (const auto whole = fs::canonical(path, gone); !gone) path = whole.string();
  }
  return paths;
}

/// Gives `config` the paths of the run under the keys whose paths lead to the same files.
void take_same_files(ExperimentConfig& config, const ExperimentConfig& run) {
  const auto values = [](ExperimentConfig of) {
    std::map<std::string, std::vector<std::string>, std::less<>> all;
    for (const auto& [key, who, path, paths] : path_keys(of))
      all.emplace(key, canonical(path ? std::vector{*path} : *paths));
    return all;
  };
  const auto own = values(config), known = values(run);
  take_paths(config, run, [&](std::string_view key) {
    const auto same = known.find(key);
    return same != known.end() && own.find(key)->second == same->second;
  });
}

}  // namespace

ExperimentConfig RunRequest::config(std::span<const std::string> before) const {
  std::vector<std::string> all(before.begin(), before.end());
  all.insert(all.end(), settings.begin(), settings.end());
  auto config = ExperimentConfig::load(file, all);
  if (!out.empty()) config.output.dir = out;
  return config;
}

bool gives(std::span<const std::string> settings, std::string_view key) {
  auto table = config::Table::parse("", "--set");
  for (const auto& setting : settings) table.set(setting);
  return table.contains_path(key);
}

bool RunRequest::says(std::string_view key) const { return gives(settings, key); }

std::optional<int64_t> RunRequest::rounds(std::span<const std::string> before) const {
  return says("train.rounds") ? std::optional(config(before).train.rounds) : std::nullopt;
}

std::vector<std::string> lines_of(std::span<const ChangedKey> changes) {
  std::vector<std::string> lines;
  for (const auto& [key, value, in_run] : changes)
    lines.push_back(value ? concat(key, " is ", *value, ", in the run ", in_run.value_or("not there"))
                          : concat(key, " is not there, in the run ", *in_run));
  return lines;
}

std::vector<std::string> difference_lines(const RunConfig& asked, const RunConfig& run) {
  return lines_of(changed_keys(*asked, *run));
}

RunConfig settled_like(ExperimentConfig asked, const RunConfig& run) {
  leave_copy_to_run(asked.data.chat_template, run->data.chat_template);
  if (asked.data.date == jinja::Date::kToday && !run->data.date.empty()) asked.data.date = run->data.date;
  const int64_t threads = run->threads * asked.clients.parallel;  // settle() divides them
  const bool records = GraphsChoice::kOn == run->model.graphs || GraphsChoice::kOn == asked.model.graphs;
  const bool has_kernels = run->model.cuda_kernels != "none" || asked.model.cuda_kernels != "auto";
  return settle(std::move(asked), {.threads = threads,
                                   .products = run->model.product_table(),
                                   .device = run->model.device,
                                   .no_graphs = records ? "" : "the run records none",
                                   .no_cuda_kernels = has_kernels ? "" : "the run has none"});
}

std::vector<ChangedKey> changes_of(const ExperimentConfig& now, const ExperimentConfig& then, const RunConfig& run,
                                   const SettledChange& as_run) {
  const auto asked_anew = keys_of(changed_keys(now, then));
  if (asked_anew.empty()) return {};
  auto asked = now;
  take_paths(asked, *run, [&](std::string_view key) { return !asked_anew.contains(key); });
  leave_copy_to_run(asked.data.chat_template, run->data.chat_template);
  expand_paths(asked);
  find_paths(asked, [&](std::string_view key) { return asked_anew.contains(key); });
  take_same_files(asked, *run);
  auto settled = settled_like(std::move(asked), run);
  if (as_run) settled = as_run(settled);
  auto changes = changed_keys(*settled, *run);
  std::erase_if(changes, [&](const ChangedKey& change) { return !asked_anew.contains(change.key); });
  return changes;
}

}  // namespace evenkeel::fed
