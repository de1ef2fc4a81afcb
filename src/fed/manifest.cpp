#include "fed/manifest.h"

#include <sys/utsname.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>

#include "base/files.h"
#include "base/log.h"
#include "base/machine.h"

namespace evenkeel {
namespace {

OrderedJson machine_record() {
  utsname name{};
  uname(&name);
  return {{"system", concat(name.sysname, " ", name.release)},
          {"architecture", name.machine},
          {"processor", machine::processor_field("model name")},
          {"cores", machine::processors()},
          {"memory", concat(machine::memory().physical / 1024, " kB")}};
}

OrderedJson libraries() {
  return {{"torch", TORCH_VERSION},
          {"nlohmann_json",
           concat(NLOHMANN_JSON_VERSION_MAJOR, ".", NLOHMANN_JSON_VERSION_MINOR, ".", NLOHMANN_JSON_VERSION_PATCH)},
          {"compiler", __VERSION__}};
}

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// HEAD of the checkout the program was built from, read without running git; empty when there is none.
std::string git_hash() {
  try {
    const auto git = shipped_folder() / ".git";
    const std::string head = first_line(git / "HEAD");
    return head.starts_with("ref: ") ? first_line(git / head.substr(5)) : head;
  } catch (const Error&) {
    return "";
  }
}

std::string now() {
  const std::time_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

OrderedJson fingerprint(const fs::path& file) {
  return {{"path", fs::absolute(file).string()}, {"bytes", fs::file_size(file)}, {"sha256", sha256_file(file)}};
}

bool belongs_to_model(const fs::path& file) {
  return file.extension() == ".safetensors" || file.filename() == "config.json" || file.filename() == "tokenizer.json";
}

std::vector<fs::path> model_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && belongs_to_model(entry.path())) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

void check_file(const Json& entry) {
  const fs::path file = entry.at("path").get<std::string>();
  EK_CHECK(fs::exists(file), kIo, file.string(), " is gone, but the run was made with it");
  const uintmax_t then = entry.at("bytes"), today = fs::file_size(file);
  const bool same = then == today && sha256_file(file) == entry.at("sha256").get<std::string>();
  EK_CHECK(same, kData, file.string(), " has changed since the run was made (", then, " bytes then, ", today,
           " now): a run goes on with the files it began with");
}

}  // namespace

std::vector<fs::path> input_files(const ExperimentConfig& config, const fs::path& model_folder,
                                  std::span<const std::string> training_files) {
  auto files = model_files(model_folder);
  files.insert(files.end(), training_files.begin(), training_files.end());
  for (const auto& name : config.evaluate.tasks) {
    const auto& task = find_task(name);
    const auto file = fs::path(config.data.path) / task.file;
    const bool known = std::find(files.begin(), files.end(), file) != files.end();  // one file may train and test
    if (!task.file.empty() && !known && fs::exists(file)) files.push_back(file);
  }
  const auto& bert = config.evaluate.bert_score;
  if (!bert.encoder.empty())
    for (auto& file : model_files(bert.encoder)) files.push_back(std::move(file));
  if (!bert.baseline.empty()) files.emplace_back(bert.baseline);
  return files;
}

OrderedJson make_manifest(std::span<const fs::path> files) {
  OrderedJson inputs = OrderedJson::array();
  for (const auto& file : files) inputs.push_back(fingerprint(file));
  return {{"program", "evenkeel"},    {"version", version()},        {"git", git_hash()}, {"created", now()},
          {"libraries", libraries()}, {"machine", machine_record()}, {"files", inputs}};
}

void check_manifest(const Json& manifest) {
  for (const auto& entry : manifest.at("files")) check_file(entry);
  const std::string made_by = manifest.at("version");
  if (made_by != version())
    log::warning("[train] the run was begun by version ", made_by, ", this is ", version(), ": bits may differ");
}

}  // namespace evenkeel
