#include "fed/run/stored_config.h"

#include <utility>
#include <vector>

#include "base/plain/data_path.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "fed/run/new_run_folder.h"
#include "fed/store/manifest.h"
#include "fed/store/moved_rows.h"
#include "fed/store/run_changes.h"
#include "models/causal_lm.h"

namespace evenkeel::fed {
namespace {

/// Reads the text of the settled config in a file of the run folder.
RunConfig parse_config(const std::string& text, const fs::path& folder, std::string_view file) {
  const auto place = (folder / file).string();
  auto values = ExperimentConfig::read(config::Table::parse(text, place));
  values.output.dir = folder.string();
  find_moved_rows(values, folder);
  return RunConfig::of_settled(std::move(values), place);
}

/// Returns the config in `manifest`. \throws kConfig unless config.toml holds the same bytes
RunConfig checked_config(const fs::path& folder, const Json& manifest) {
  const auto file = folder / kConfigFile;
  const auto then = JsonView(manifest, (folder / kManifestFile).string(), kCheckpoint).at("config").string();
  auto config = parse_config(then, folder, kManifestFile);
  const auto now = read_file(file);
  if (now == then || is_config_before_change(manifest, now)) return config;
  const auto who = concat(file.string(), " is not as the run wrote it (manifest.json holds that text as \"config\")");
  std::vector<std::string> changes;
  try {
    changes = difference_lines(parse_config(now, folder, kConfigFile), config);
  } catch (const Error& error) {
    throw error.with_context(who);
  }
  fail(kConfig, who, ": ", changes.empty() ? "no key has another value, but bytes differ" : join(changes, "; "));
}

/// Returns the path of the run's copy of its chat template. \throws kCheckpoint when it has changed
std::string own_template(const fs::path& folder, const Json& manifest) {
  const auto file = folder / kChatTemplate;
  const auto then = JsonView(manifest, (folder / kManifestFile).string(), kCheckpoint).at("chat_template").string();
  EK_CHECK(path_exists(file) && sha256_file(file) == then, kCheckpoint, file.string(),
           " is not the chat template that the run was begun with: its sha256 was ", then);
  return absolute_path(file);
}

}  // namespace

RunConfig run_config(const fs::path& folder) {
  EK_CHECK(holds_run(folder), kIo, why_no_run(folder));
  const auto manifest = read_manifest(folder);
  const auto config = checked_config(folder, manifest);
  if (config->data.chat_template.empty()) return config;
  return config.with([&](ExperimentConfig& values) { values.data.chat_template = own_template(folder, manifest); });
}

RunConfig config_with_base(const fs::path& folder, const std::string& base) {
  auto config = run_config(folder);
  if (!base.empty())
    config = config.with([&](ExperimentConfig& values) { values.model.path = moved_base(base).string(); });
  check_base(read_manifest(folder), models::find_model_folder(config->model.path));
  return config;
}

fs::path moved_base(const std::string& base) { return absolute_path(models::find_model_folder(base)); }

void check_template_source(const fs::path& folder, const Json& manifest) {
  const JsonView view(manifest, (folder / kManifestFile).string(), kCheckpoint);
  const auto source = parse_config(view.at("config").string(), folder, kManifestFile)->data.chat_template;
  if (source.empty() || !path_exists(source)) return;
  EK_CHECK(sha256_file(source) == view.at("chat_template").string(), kData, "data.chat_template: ", source,
           " has changed since the run was made, which goes on with its copy (", (folder / kChatTemplate).string(),
           "): put it back, or take it away");
}

}  // namespace evenkeel::fed
