#include "study/definition/study_plan.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/text.h"
#include "base/system/error_context.h"
#include "fed/config/arithmetic.h"
#include "fed/config/config_paths.h"
#include "fed/store/changed_keys.h"
#include "fed/store/moved_rows.h"
#include "records/run_settings.h"
#include "study/definition/job_slots.h"

namespace evenkeel::study {
namespace {

/// Keys that are pinned in study.json, regardless of [study] free.
constexpr std::array<std::string_view, 8> kPinned = {"seed",
                                                     "threads",
                                                     "model.device",
                                                     "model.engine",
                                                     "model.graphs",
                                                     "model.cuda_kernels",
                                                     "model.compute_dtype",
                                                     "model.products"};
/// Keys and sections in which arms may differ: what is compared, and names.
constexpr std::array<std::string_view, 4> kFree = {"method", "train", "name", "output"};
/// Keys of [train] that are no part of what is compared: how long a run is, and in what precision factors are sent and
/// then scored.
constexpr std::array<std::string_view, 3> kEqualInTrain = {"train.rounds", "train.stop", "train.transport_dtype"};

template <typename Sections>
bool lies_in_any(std::string_view key, const Sections& sections) {
  return std::any_of(sections.begin(), sections.end(),
                     [&](const auto& section) { return records::is_in_section(key, section); });
}

/// Returns the key of a setting, "a . b = 1" as "a.b".
std::string key_of(std::string_view setting) {
  std::string key(setting.substr(0, setting.find('=')));
  std::erase_if(key, [](char c) { return c == ' ' || c == '\t'; });
  return key;
}

void refuse_seed(const std::vector<std::string>& settings, const std::string& who) {
  for (const auto& setting : settings)
    EK_CHECK(key_of(setting) != "seed", kConfig, who, " sets ", shown(setting),
             ", allowed: seeds in [study] seeds alone");
}

std::vector<std::string> joined(std::vector<std::string> settings, const std::vector<std::string>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

std::string who(const std::string& arm) { return concat("arm ", arm); }

void check_arm(const ArmSection& arm, const fed::ExperimentConfig& asked, const fed::ExperimentConfig& reference,
               const StudySection& study) {
  for (const auto& [key, value, other] : fed::changed_keys(asked, reference)) {
    const bool pinned = lies_in_any(key, kPinned);
    const bool free = (lies_in_any(key, kFree) && !lies_in_any(key, kEqualInTrain)) || lies_in_any(key, study.free);
    EK_CHECK(!pinned && free, kConfig, who(arm.name), ": ", key, " is ", shown(value.value_or("not there")),
             ", in arm ", study.reference, " ", shown(other.value_or("not there")), ", allowed: the same in all arms",
             pinned ? "" : concat(", or [study] free = [\"", key, "\"]"));
  }
}

/// Returns the descriptions of the arms' methods that are not compiled into the program; nothing if there are none.
std::optional<methods::MethodDescriptions> methods_of(std::span<const PlannedArm> arms) {
  methods::MethodDescriptions found;
  for (const auto& arm : arms) {
    const auto& own = arm.resolved.method.entry().described;
    const auto& known = found.list;
    if (own && std::find(known.begin(), known.end(), own->json) == known.end()) found.list.push_back(own->json);
  }
  return found.list.empty() ? std::nullopt : std::optional(found);
}

bool has_endpoint(const fed::RunConfig& config, Endpoint endpoint) {
  const auto& from = config.rows();
  const auto& tasks = config->evaluate.tasks;
  return std::any_of(tasks.begin(), tasks.end(), [&](const std::string& task) {
    return scoring::measure_of(endpoint).is_of(scoring::kind_of(data::find_task(task, from).scoring),
                                               config->evaluate.likelihood,
                                               !config->evaluate.bert_score.encoder.empty());
  });
}

/// Returns the names of the endpoints that some task of the config is scored by.
std::vector<std::string_view> endpoints_of(const fed::RunConfig& config) {
  std::vector<std::string_view> all;
  for (const auto& entry : names(Endpoint{}))
    if (has_endpoint(config, entry.value)) all.push_back(entry.name);
  return all;
}

/// Returns true for a key or section of the config, and for sections that only some configs have.
bool is_known(std::string_view name, const config::Values& values) {
  constexpr std::array<std::string_view, 2> kAtTimes = {"clients.client", "client_profiles"};
  return lies_in_any(name, kAtTimes) || std::any_of(values.begin(), values.end(), [&](const auto& value) {
           return records::is_in_section(value.first, name);
         });
}

void check_free(const StudySection& study, const fed::ExperimentConfig& config) {
  const auto values = config.values();
  for (const auto& name : study.free) {
    EK_CHECK(is_known(name, values), kConfig, "study.free holds \"", shown(name),
             "\", which is no key or section of a config");
    EK_CHECK(!lies_in_any(name, kPinned), kConfig, "study.free holds \"", name, "\", allowed: anything but ",
             join(kPinned));
  }
}

std::string quoted_setting(std::string_view key, const std::string& value) {
  return concat(key, "=", Json(value).dump());
}

void pin_products(std::vector<std::string>& settings, const fed::ProductsSection& products) {
  const auto pin = [&](std::string_view key, const std::vector<std::string>& kernels) {
    settings.push_back(concat("model.products.", key, "=[\"", join(kernels, "\",\""), "\"]"));
  };
  pin("expert_forward", products.expert_forward);
  pin("expert_backward", products.expert_backward);
  pin("linear_forward", products.linear_forward);
  pin("linear_backward", products.linear_backward);
}

/// Returns `[cluster]` of the base config as text. It is no part of a run's config, but `train` reads it.
std::string cluster_text(const StudyRequest& request, const ArmSection& arm) {
  auto table = config::Table::load(request.file.base);
  for (const auto& setting : joined(request.of_all_arms(), arm.set)) table.set(setting);
  return table.contains("cluster") ? concat("\n[cluster]\n", table.table("cluster").text()) : "";
}

/// Gives `config` the paths of the first known arm that was asked for the same path, key by key.
void keep_known_paths(fed::ExperimentConfig& config, const fed::ExperimentConfig& asked,
                      std::span<const PlannedArm> known) {
  for (auto arm = known.rbegin(); arm != known.rend(); ++arm) {
    std::set<std::string, std::less<>> other;
    for (const auto& change : fed::changed_keys(asked, arm->asked)) other.insert(change.key);
    fed::take_paths(config, arm->resolved, [&](std::string_view key) { return !other.contains(key); });
  }
}

PlannedArm planned_arm(const StudyRequest& request, const std::vector<std::string>& pinned, const ArmSection& arm,
                       std::span<const PlannedArm> known) {
  const auto asked = asked_config(request, arm);
  try {
    auto resolved = read_config(request.file.base, joined(joined(request.of_all_arms(), arm.set), pinned));
    keep_known_paths(resolved, asked, known);
    resolved = fed::with_inputs(std::move(resolved));
    resolved.output.dir.clear();
    return {arm.name, asked, resolved, resolved.text() + cluster_text(request, arm)};
  } catch (const Error& error) {
    throw error.with_context(who(arm.name));
  }
}

/// Returns true if the base config or a setting of the study decides whether scores of single rows are recorded.
bool decides_items(const StudyRequest& request) {
  constexpr std::string_view kItems = "evaluate.items";
  const auto in_arm = [&](const ArmSection& arm) {
    return in_context(who(arm.name), [&] { return fed::gives(arm.set, kItems); });
  };
  const auto& arms = request.file.study.arm;
  return fed::gives(request.of_all_arms(), kItems) || std::any_of(arms.begin(), arms.end(), in_arm) ||
         config::Table::load(request.file.base).table("evaluate").contains("items");
}

}  // namespace

std::vector<std::string> StudyRequest::of_all_arms() const { return joined(file.study.set, common); }

fed::ExperimentConfig read_config(const fs::path& base, const std::vector<std::string>& settings) {
  auto table = config::Table::load(base);
  for (const auto& setting : settings) table.set(setting);
  auto config = fed::ExperimentConfig::read(table);
  fed::find_moved_rows(config, base.parent_path());  // the base of a study lies beside its rows
  return config;
}

const PlannedArm* find_arm(std::span<const PlannedArm> arms, std::string_view name) {
  const auto found = std::find_if(arms.begin(), arms.end(), [&](const PlannedArm& arm) { return arm.name == name; });
  return found == arms.end() ? nullptr : &*found;
}

fed::ExperimentConfig asked_config(const StudyRequest& request, const ArmSection& arm) {
  refuse_seed(arm.set, who(arm.name));
  try {
    return read_config(request.file.base, joined(request.of_all_arms(), arm.set));
  } catch (const Error& error) {
    throw error.with_context(who(arm.name));
  }
}

std::vector<std::string> pinned_settings(const StudyRequest& request, int64_t jobs) {
  auto asked = fed::ExperimentConfig::load(request.file.base, request.of_all_arms());
  const int64_t at_once = job_slots(asked.model.device, jobs).count();
  if (asked.threads == 0)
    asked.threads = std::max<int64_t>(1, at::intraop_default_num_threads() / (at_once * asked.clients.parallel));
  const auto config = fed::settle(asked, fed::machine_choices(asked));
  std::vector<std::string> settings = {
      concat("threads=", config->threads),
      quoted_setting("model.device", config->model.device),
      quoted_setting("model.engine", std::string(config::name_of(config->model.engine))),
      quoted_setting("model.graphs", std::string(config::name_of(config->model.graphs))),
      quoted_setting("model.cuda_kernels", config->model.cuda_kernels),
      quoted_setting("model.compute_dtype", std::string(config::name_of(config->model.compute_dtype)))};
  if (config->model.products.given()) pin_products(settings, config->model.products);
  if (!config->data.date.empty()) settings.push_back(quoted_setting("data.date", config->data.date));
  return settings;
}

StudyRequest with_items(StudyRequest request) {
  if (!decides_items(request)) request.common.insert(request.common.begin(), "evaluate.items=true");
  return request;
}

void check_arms(const StudyRequest& request) {
  const auto& study = request.file.study;
  refuse_seed(study.set, "study.set");
  refuse_seed(request.common, "--set");
  const auto is_reference = [&](const ArmSection& arm) { return arm.name == study.reference; };
  const auto reference = asked_config(request, *std::find_if(study.arm.begin(), study.arm.end(), is_reference));
  check_free(study, reference);
  for (const auto& arm : study.arm) check_arm(arm, asked_config(request, arm), reference, study);
}

std::vector<PlannedArm> plan_arms(const StudyRequest& request, const std::vector<std::string>& pinned,
                                  std::span<const PlannedArm> known) {
  check_arms(request);
  std::vector<PlannedArm> arms;
  for (const auto& arm : request.file.study.arm) {
    const auto* same = find_arm(known, arm.name);
    arms.push_back(same ? *same : planned_arm(request, pinned, arm, known));
  }
  return arms;
}

fed::ExperimentConfig resolved_config(const PlannedArm& arm, int64_t seed) {
  auto config = arm.resolved;
  config.seed = seed;
  return config;
}

PlannedRun planned_run(const PlannedArm& arm, int64_t seed) {
  try {
    const auto config = fed::settle(resolved_config(arm, seed), {.threads = arm.resolved.threads, .products = {}});
    return {arm.name, seed, config.with([](fed::ExperimentConfig& values) { values.output.dir.clear(); })};
  } catch (const Error& error) {
    throw error.with_context(who(arm.name));
  }
}

std::vector<PlannedRun> plan_runs(std::span<const PlannedArm> arms, std::span<const int64_t> seeds) {
  std::vector<PlannedRun> runs;
  for (const int64_t seed : seeds)
    for (const auto& arm : arms) runs.push_back(planned_run(arm, seed));
  return runs;
}

void check_endpoint(Endpoint endpoint, std::span<const PlannedRun> runs) {
  for (const auto& [arm, seed, config] : runs)
    EK_CHECK(has_endpoint(config, endpoint), kConfig, "study.endpoint is \"", config::name_of(endpoint),
             "\", which no task of ", who(arm), " is scored by (", join(config->evaluate.tasks),
             "), allowed: ", join(endpoints_of(config)));
}

std::string config_digest(const fed::RunConfig& config) {
  auto values = *config;
  values.output.dir.clear();
  return sha256(values.text());
}

StudyRequest request_of(const StudyState& state, const fs::path& base) {
  StudyRequest request{.file = {}, .common = state.common};
  auto& study = request.file.study;
  study.name = state.name;
  study.base = std::string(kBaseFile);
  study.set = state.set;
  study.reference = state.reference;
  study.seeds = state.seeds;
  study.endpoint = state.endpoint;
  study.free = state.free;
  for (const auto& arm : state.arms) study.arm.push_back({arm.name, arm.set});
  request.file.base = base;
  return request;
}

StudyState new_state(const StudyRequest& request, const std::vector<std::string>& pinned,
                     std::span<const PlannedArm> arms, std::span<const PlannedRun> runs) {
  const auto& study = request.file.study;
  StudyState state{.name = study.name, .reference = study.reference, .endpoint = study.endpoint, .seeds = study.seeds};
  for (const auto& arm : request.file.arms())
    state.arms.push_back({arm.name, arm.set, sha256(find_arm(arms, arm.name)->text)});
  state.methods = methods_of(arms);
  state.set = study.set;
  state.common = request.common;
  state.free = study.free;
  state.pinned = pinned;
  state.base_sha256 = sha256_file(request.file.base);
  for (const auto& run : runs)
    state.runs.push_back({.arm = run.arm,
                          .seed = run.seed,
                          .folder = run_folder_name(run.arm, run.seed),
                          .config_sha256 = config_digest(run.config)});
  return state;
}

}  // namespace evenkeel::study
