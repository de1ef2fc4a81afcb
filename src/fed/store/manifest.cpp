#include "fed/store/manifest.h"

#include <sys/utsname.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/format/command_line.h"
#include "base/format/fingerprint.h"
#include "base/plain/clock.h"
#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "base/plain/hub_cache.h"
#include "base/plain/log.h"
#include "base/system/device.h"
#include "base/system/machine.h"
#include "base/system/revision.h"
#include "fed/store/moved_rows.h"
#include "methods/described_method.h"

namespace evenkeel::fed {
namespace {

constexpr int64_t kFormat = 3;
constexpr std::array kKeysOfRuns{"version", "machine", "libraries", "files"};  // tell a run's manifest from others
constexpr const char *kBase = "base", *kEncoder = "encoder", *kModel = "model", *kName = "name", *kMethod = "method";
constexpr size_t kMostManifest = size_t{64} << 20;  // bytes of a manifest, to read a foreign one no further

/// Describes the GPU that the run is computed on.
OrderedJson gpu_record(const std::string& device) {
  const auto gpu = find_device(device, "model.device");
  const auto identity = device_identity(gpu);
  return {{"name", identity.name},
          {"architecture", identity.architecture},
          {"memory", machine::bytes_text(device_memory(gpu).total)},
          {"driver", identity.driver},
          {"cuda", identity.runtime}};
}

OrderedJson machine_record(const ModelSection& model) {
  utsname name{};
  uname(&name);
  OrderedJson record = {{"system", concat(name.sysname, " ", name.release)},
                        {"architecture", name.machine},
                        {"processor", machine::processor_field("model name")},
                        {"cores", machine::processors()},
                        {"memory", concat(machine::memory().physical / 1024, " kB")}};
  if (names_gpu(model.device)) {
    record["gpu"] = gpu_record(model.device);
    record["gpu"]["graphs"] = config::name_of(model.graphs);
  }
  return record;
}

OrderedJson libraries() {
  return {{"torch", TORCH_VERSION},
          {"nlohmann_json",
           concat(NLOHMANN_JSON_VERSION_MAJOR, ".", NLOHMANN_JSON_VERSION_MINOR, ".", NLOHMANN_JSON_VERSION_PATCH)},
          {"compiler", __VERSION__}};
}

/// Returns true if the file has the digest in its manifest entry.
bool has_digest(const fs::path& file, const JsonView& entry) {
  const auto print = fingerprint_of(file);
  const auto digest = entry.find(print.kind);
  return digest && print.digest == digest->string();
}

bool holds(const std::vector<std::string>& files, const fs::path& file) {
  return std::find(files.begin(), files.end(), file.string()) != files.end();
}

/// Returns the names or numbers of the clients that own the file.
OrderedJson owners_of(const ClientsSection& clients, const fs::path& file) {
  OrderedJson owners = OrderedJson::array();
  for (size_t i = 0; i < clients.client.size(); ++i) {
    const auto& own = clients.client[i];
    if (holds(own.data, file) || holds(own.test, file))
      owners.push_back(own.name.empty() ? std::to_string(i) : own.name);
  }
  return owners;
}

uint64_t bytes_then(const JsonView& entry) { return static_cast<uint64_t>(entry.at("bytes").integer(0)); }

/// Records the folder of a model and marks its files.
/// \param path  as the settled config has it
void record_model(OrderedJson& manifest, const char* model, const std::string& path, const fs::path& folder) {
  auto& record = manifest["models"][model];
  record = {{"path", path}, {"folder", absolute_path(folder)}};
  const auto at = path.find('@');
  if (path.starts_with(kHubAddress) && at != path.npos)
    record["revision"] = path.substr(at + 1, path.find('/', at) - at - 1);
  std::map<std::string, std::string> names;
  for (const auto& file : model_files(folder)) names.emplace(absolute_path(file), model_file_name(file, folder));
  for (auto& entry : manifest["files"]) {
    const auto found = names.find(entry.at("path").get<std::string>());
    if (found == names.end()) continue;
    entry[kModel] = model;
    entry[kName] = found->second;
  }
}

bool is_of(const JsonView& entry, std::string_view model) {
  const auto of = entry.find(kModel);
  return of && of->string() == model;
}

/// Checks that a model's folder has no file that counts beyond those of the manifest.
void check_none_added(const JsonView& manifest, std::string_view model, const fs::path& folder,
                      std::string_view what_to_do) {
  std::set<std::string> known;
  for (const auto& entry : manifest.at("files").items())
    if (is_of(entry, model)) known.insert(entry.at(kName).string());
  for (const auto& file : model_files(folder))
    EK_CHECK(known.contains(model_file_name(file, folder)), kData, file.string(),
             " was not there when the run was made, and changes what is computed: ", what_to_do);
}

bool has_changed(const fs::path& file, const JsonView& entry, std::string_view what_to_do) {
  EK_CHECK(path_exists(file), kIo, file.string(), " is gone, but the run was made with it",
           what_to_do.empty() ? "" : ": ", what_to_do);
  return !has_content(file, entry);
}

[[noreturn]] void refuse_change(const fs::path& file, const JsonView& entry, std::string_view why) {
  fail(kData, file.string(), " has changed since the run was made (", bytes_then(entry), " bytes then, ",
       evenkeel::file_size(file), " now): ", why);
}

/// Warns if the processor differs from the one that the run began on. The run keeps its kernels, which may be slow or
/// round differently here.
void check_machine(const fs::path& folder, const JsonView& manifest) {
  const auto made_on = manifest.at("machine").at("processor").string(),
             processor = machine::processor_field("model name");
  if (made_on != processor)
    log::warning(
        "[train] the run was begun on a processor \"", made_on, "\", this is \"", processor,
        "\": it keeps its arithmetic (model.compute_dtype, model.products), which may not be the fastest here, "
        "and bits may differ; this one is measured by: ",
        resume_command(folder, {"--set", "model.compute_dtype=auto"}));
}

}  // namespace

OrderedJson manifest_entry(const fs::path& file) {
  const auto print = fingerprint_of(file);
  return {{"path", absolute_path(file)}, {"bytes", fs::file_size(file)}, {print.kind, print.digest}};
}

bool has_content(const fs::path& file, const JsonView& entry) {
  return bytes_then(entry) == evenkeel::file_size(file) && has_digest(file, entry);
}

std::vector<fs::path> input_files(const RunConfig& config, const fs::path& model_folder,
                                  std::span<const std::string> training_files) {
  auto files = model_files(model_folder);
  if (!config->lora.init.empty())
    for (const auto* name : {"adapter_config.json", "adapter_model.safetensors"})
      files.push_back(fs::path(config->lora.init) / name);
  if (!config->data.chat_template.empty()) files.emplace_back(config->data.chat_template);
  files.insert(files.end(), training_files.begin(), training_files.end());
  const auto& from = config.rows();
  for (const auto& name : config.tasks_here())
    for (const fs::path file : data::test_files(data::find_task(name, from), from))
      // Training and test files can overlap.
      if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  const auto& bert = config->evaluate.bert_score;
  if (!bert.encoder.empty())
    for (auto& file : model_files(bert.encoder)) files.push_back(std::move(file));
  if (!bert.baseline.empty()) files.emplace_back(bert.baseline);
  return files;
}

OrderedJson make_manifest(const RunConfig& config, const RunRequest& request, const ExperimentConfig& asked,
                          std::span<const fs::path> files) {
  OrderedJson inputs = OrderedJson::array();
  for (const auto& file : files) {
    inputs.push_back(manifest_entry(file));
    if (auto owners = owners_of(config->clients, file); !owners.empty()) inputs.back()["clients"] = std::move(owners);
  }
  OrderedJson manifest = {
      {"format", kFormat},
      {"program", "evenkeel"},
      {"version", version()},
      {"git", revision()},
      {"created", utc_now()},
      {"libraries", libraries()},
      {"machine", machine_record(config->model)},
      {"models", OrderedJson::object()},
      {"files", inputs},
      {"request", {{"file", absolute_path(request.file)}, {"settings", request.settings}, {"config", asked.text()}}},
      {"config", config->text()}};
  if (request.allowed) manifest["allowed"] = *request.allowed;
  if (const auto& own = config->method.entry().described) manifest[kMethod] = own->json;
  record_model(manifest, kBase, config->model.path, models::find_model_folder(config->model.path));
  if (const auto& encoder = config->evaluate.bert_score.encoder; !encoder.empty())
    record_model(manifest, kEncoder, encoder, encoder);
  return manifest;
}

void write_manifest(const fs::path& folder, const OrderedJson& manifest) {
  write_sealed(folder / kManifestFile, manifest, 2);
}

Json read_manifest(const fs::path& folder) {
  const auto file = folder / kManifestFile;
  Json manifest = read_sealed(file);
  const auto format = JsonView(manifest, file.string(), kCheckpoint).at("format").integer();
  EK_CHECK(format == kFormat, kCheckpoint, file.string(), ": run folders of format ", format,
           " are unknown, allowed: ", kFormat);
  if (const auto method = JsonView(manifest, file.string(), kCheckpoint).find(kMethod))
    methods::know_described(*method);
  return manifest;
}

bool has_changed_method(const Json& manifest, const methods::MethodEntry& now, bool may_change) {
  const auto then = JsonView(manifest, std::string(kManifestFile), kCheckpoint).find(kMethod);
  if (!then || !now.described) return false;
  const auto& own = *now.described;
  const auto hash = then->at("sha256").string();
  EK_CHECK(now.has_hooks || own.hooks.empty(), kConfig, "method ", now.name, " is a class in Python, and a run folder ",
           "starts no code: name its file by --method ", own.file, ":", own.class_name);
  EK_CHECK(may_change || hash == own.sha256, kConfig, own.file, " is not the source of method ", now.name,
           " that the run was made with: its sha256 is ", own.sha256, ", then ", hash,
           "; put it back, or go on with it by --changed-method");
  return hash != own.sha256;
}

BegunRequest begun_request(const fs::path& folder) {
  const Json manifest = read_manifest(folder);
  const auto place = (folder / kManifestFile).string();
  const auto request = JsonView(manifest, place, kCheckpoint).at("request");
  return {request.at("settings").strings(),
          ExperimentConfig::read(config::Table::parse(request.at("config").string(), place))};
}

/// Returns the command that resumes the run. It names the config file that the run was begun with, or the copy in the
/// run folder if that file does not exist any more, and the file of a method in Python.
std::string resume_command(const fs::path& folder, const std::vector<std::string>& more) {
  auto config = folder / "config.toml";
  std::vector<std::string> method;
  try {
    const auto manifest = read_manifest(folder);
    const JsonView view(manifest, std::string(kManifestFile), kCheckpoint);
    const fs::path file = view.at("request").at("file").string();
    if (is_file(file)) config = file;
    if (const auto own = view.find(kMethod))
      method = methods::method_flag(own->at("file").string(), own->at("class").string());
  } catch (const Error&) {  // readers of the manifest report its errors
  }
  const bool served = path_exists(folder / "federation");  // flower/federation/serve.h
  std::vector<std::string> words{served ? "serve" : "train", config.string(), "--out", folder.string(), "--resume"};
  words.insert(words.end(), method.begin(), method.end());
  words.insert(words.end(), more.begin(), more.end());
  return command_line(words) + (served ? ", with the flags of its network" : "");
}

bool holds_manifest(const fs::path& folder) {
  const auto file = folder / kManifestFile;
  if (!path_exists(file)) return false;
  if (path_exists(folder / run_file("config.toml")) && is_folder(folder / run_file("checkpoint"))) return true;
  try {
    const Json json = load_json(file, kCheckpoint, {.bytes = kMostManifest});
    return json.is_object() &&
           std::all_of(kKeysOfRuns.begin(), kKeysOfRuns.end(), [&](const char* key) { return json.contains(key); });
  } catch (const Error&) {
    return false;  // not JSON, and nothing of a run beside it
  }
}

std::string why_no_run(const fs::path& folder) {
  const bool is_there = path_exists(folder / kManifestFile);
  return concat(folder.string(), " holds no run: manifest.json is ", is_there ? "not that of a run" : "missing");
}

void check_base(const Json& manifest, const fs::path& base, bool may_move) {
  const JsonView view(manifest, std::string(kManifestFile), kCheckpoint);
  const auto advice = [&](std::string_view first, std::string_view folder) {
    return may_move ? concat(first, ", or name ", folder, ": --base FOLDER") : std::string(first);
  };
  const auto put_back = advice("put it back", "a folder that holds what the run was made with");
  EK_CHECK(is_folder(base), kIo, base.string(),
           ", the base model of the run, is not there: ", advice("put it back", "the folder that it was moved to"));
  for (const auto& entry : view.at("files").items()) {
    const fs::path then = entry.at("path").string();
    if (!is_of(entry, kBase)) continue;
    const auto file = base / entry.at(kName).string();
    if (has_changed(file, entry, put_back)) refuse_change(file, entry, put_back);
  }
  check_none_added(view, kBase, base, advice("take it away", "a folder without it"));
}

std::vector<fs::path> check_input_files(const fs::path& folder, const Json& manifest, const fs::path& base,
                                        const std::function<std::string(const fs::path& file)>& why_fixed,
                                        bool may_move) {
  check_base(manifest, base, may_move);
  const JsonView view(manifest, (folder / kManifestFile).string(), kCheckpoint);
  std::vector<JsonView> changed;
  for (const auto& entry : view.at("files").items())
    if (!is_of(entry, kBase) && has_changed(place_now(folder, entry.at("path").string()), entry, ""))
      changed.push_back(entry);
  if (const auto encoder = view.at("models").find(kEncoder))
    check_none_added(view, kEncoder, encoder->at("folder").string(), "take it away");
  std::vector<fs::path> free;
  for (const auto& entry : changed) {
    const fs::path file = place_now(folder, entry.at("path").string());
    if (const auto why = why_fixed(file); !why.empty()) refuse_change(file, entry, why);
    free.push_back(file);
  }
  return free;
}

std::vector<fs::path> changed_among(const Json& manifest, std::span<const fs::path> files) {
  const JsonView view(manifest, std::string(kManifestFile), kCheckpoint);
  std::set<fs::path> read;
  for (const auto& file : files) read.insert(absolute_path(file));
  std::vector<fs::path> changed;
  for (const auto& entry : view.at("files").items()) {
    const fs::path file = entry.at("path").string();
    if (read.contains(file) && !is_of(entry, kBase) && !has_content(file, entry)) changed.push_back(file);
  }
  return changed;
}

void check_program(const fs::path& folder, const Json& manifest) {
  const JsonView view(manifest, (folder / kManifestFile).string(), kCheckpoint);
  check_machine(folder, view);
  const auto made_by = view.at("version").string();
  if (made_by != version())
    log::warning("[train] the run was begun by version ", made_by, ", this is ", version(), ": bits may differ");
}

void check_gpu(const fs::path& folder, const Json& manifest, const std::string& device) {
  const JsonView view(manifest, (folder / kManifestFile).string(), kCheckpoint);
  const auto then = view.at("machine").find("gpu");
  if (!then || !names_gpu(device)) return;
  const OrderedJson now = gpu_record(device);
  for (const auto* part : {"name", "architecture", "driver", "cuda"})
    if (const auto was = then->at(part).string(), is = now[part].get<std::string>(); was != is)
      log::warning("[train] the run was begun on a GPU whose ", part, " is \"", was, "\", here it is \"", is,
                   "\": bits may differ");
}

}  // namespace evenkeel::fed
