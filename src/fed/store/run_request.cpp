#include "fed/store/run_request.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>

#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "fed/store/changed_keys.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kDataVariable = "$EVENKEEL_DATA/";

/// Replaces `asked` by the run's path if both are the same path below the data folder, which may have moved.
void leave_to_run(std::string& asked, const std::string& run) {
  if (!asked.starts_with(kDataVariable)) return;
  if (run.ends_with(std::string_view(asked).substr(kDataVariable.size() - 1))) asked = run;
}

/// Replaces the requested template by the run's copy if the file has not changed or does not exist any more.
void leave_copy_to_run(std::string& asked, const std::string& run) {
  if (asked.empty() || run.empty()) return;
  if (!path_exists(asked) || read_file(asked) == read_file(run)) asked = run;
}

/// Returns true if the pattern matches the file now, also under another path or as a link.
bool finds_as_another_name(const std::string& pattern, const std::string& file) {
  std::error_code gone;
  try {
    const auto found = data::found_files(std::array{pattern});
    return std::any_of(found.begin(), found.end(), [&](const auto& one) { return fs::equivalent(one, file, gone); });
  } catch (const Error&) {  // it finds nothing
    return false;
  }
}

bool stands_for(const std::string& pattern, const std::string& file) {
  if (!pattern.starts_with(kDataVariable))
    return pattern == file || ::fnmatch(pattern.c_str(), file.c_str(), FNM_PATHNAME) == 0 ||
           finds_as_another_name(pattern, file);
  return ::fnmatch(concat("*", pattern.substr(kDataVariable.size() - 1)).c_str(), file.c_str(), 0) == 0;
}

/// Replaces the requested patterns by the run's files if they match all of these. Files that were added later are
/// ignored.
void leave_to_run(std::vector<std::string>& asked, const std::vector<std::string>& run) {
  const auto is_found = [&](const std::string& file) {
    return std::any_of(asked.begin(), asked.end(), [&](const auto& pattern) { return stands_for(pattern, file); });
  };
  const auto finds = [&](const std::string& pattern) {
    return std::any_of(run.begin(), run.end(), [&](const auto& file) { return stands_for(pattern, file); });
  };
  if (std::all_of(run.begin(), run.end(), is_found) && std::all_of(asked.begin(), asked.end(), finds)) asked = run;
}

void leave_to_run(data::FileSet& asked, const data::FileSet& run) {
  leave_to_run(asked.train, run.train);
  leave_to_run(asked.test, run.test);
}

}  // namespace

ExperimentConfig RunRequest::config(std::span<const std::string> before) const {
  std::vector<std::string> all(before.begin(), before.end());
  all.insert(all.end(), settings.begin(), settings.end());
  auto config = ExperimentConfig::load(file, all);
  if (!out.empty()) config.output.dir = out;
  return config;
}

bool RunRequest::says(std::string_view key) const {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const std::string& setting) { return setting.starts_with(key); });
}

std::optional<int64_t> RunRequest::rounds(std::span<const std::string> before) const {
  return says("train.rounds=") ? std::optional(config(before).train.rounds) : std::nullopt;
}

std::vector<ChangedKey> changed_keys(const ExperimentConfig& asked, const ExperimentConfig& run) {
  auto known = run.values();
  std::vector<ChangedKey> result;
  for (const auto& [key, value] : asked.values()) {
    const auto found = known.extract(key);
    if (key == "output.dir" || (found && found.mapped() == value)) continue;
    result.push_back({key, value, found ? std::optional(found.mapped()) : std::nullopt});
  }
  for (const auto& [key, value] : known)
    if (key != "output.dir") result.push_back({key, std::nullopt, value});
  return result;
}

std::vector<std::string> difference_lines(const ExperimentConfig& asked, const ExperimentConfig& run) {
  std::vector<std::string> result;
  for (const auto& [key, value, in_run] : changed_keys(asked, run))
    result.push_back(value ? concat(key, " is ", *value, ", in the run ", in_run.value_or("not there"))
                           : concat(key, " is not there, in the run ", *in_run));
  return result;
}

ExperimentConfig resolved_like(ExperimentConfig asked, const ExperimentConfig& run) {
  leave_to_run(asked.lora.init, run.lora.init);
  leave_to_run(asked.data.path, run.data.path);
  leave_to_run(asked.data.files, run.data.files);
  asked.data.chat_template = expand_data_path(asked.data.chat_template, "data.chat_template").string();
  leave_copy_to_run(asked.data.chat_template, run.data.chat_template);
  if (asked.data.date == jinja::Date::kToday && !run.data.date.empty()) asked.data.date = run.data.date;
  for (const auto& [name, set] : run.data.files.sets)
    if (const auto same = asked.data.files.sets.find(name); same != asked.data.files.sets.end())
      leave_to_run(same->second, set);
  for (size_t i = 0; i < std::min(asked.clients.client.size(), run.clients.client.size()); ++i) {
    leave_to_run(asked.clients.client[i].data, run.clients.client[i].data);
    leave_to_run(asked.clients.client[i].test, run.clients.client[i].test);
  }
  leave_to_run(asked.evaluate.bert_score.encoder, run.evaluate.bert_score.encoder);
  leave_to_run(asked.evaluate.bert_score.baseline, run.evaluate.bert_score.baseline);
  asked.settle({.threads = run.threads, .products = run.model.product_table()});
  return asked;
}

}  // namespace evenkeel::fed
