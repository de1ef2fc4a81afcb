#include "cluster/identity.h"

#include <torch/version.h>

#include <array>

#include "base/format/fingerprint.h"
#include "base/plain/files.h"
#include "base/plain/lock_owner.h"
#include "base/plain/log.h"
#include "base/system/machine.h"
#include "fed/store/manifest.h"
#include "methods/described_method.h"

namespace evenkeel::cluster {
namespace {

std::string digest(std::string_view text) { return sha256(text).substr(0, 16); }

/// One field of an identity that must be equal on all ranks, with its name.
struct Part {
  const char* name;
  std::string Identity::*of;
};
constexpr std::array kParts = {Part{"config", &Identity::config}, Part{"method", &Identity::method},
                               Part{"data", &Identity::data},     Part{"base", &Identity::base},
                               Part{"sites", &Identity::layout},  Part{"program", &Identity::build}};

/// Returns the row numbers of all clients, with the indices of their files.
std::string rows_text(const fed::Shards& shards) {
  std::string text;
  for (const auto& rows : shards.rows) {
    for (const auto& [file, row] : rows) text += concat(file ? std::to_string(*file) : "", ':', row, ' ');
    text += '\n';
  }
  return text;
}

/// Returns the digests of a method in Python.
std::string method_digest(const methods::MethodEntry& entry) {
  return entry.described ? digest(record::write(methods::digests_of(entry)).dump()) : "compiled";
}

}  // namespace

Identity identity_of(const fed::Experiment& e) {
  const auto& shards = e.fabric.shards;
  std::string base, data = rows_text(shards);
  for (const auto& file : fed::input_files(e.server.config, e.server.model_folder, shards.files)) {
    auto& part = file.parent_path() == e.server.model_folder ? base : data;
    part += concat(file.filename().string(), ' ', fingerprint_of(file).digest, '\n');
  }
  return {.host = host_name(),
          .processor = machine::processor_field("model name"),
          .config = digest(e.server.config->text()),
          .method = method_digest(e.server.config->method.entry()),
          .data = digest(data),
          .base = digest(base),
          .layout = digest(lora::layout_text(e.server.sites)),
          .build = digest(concat(version(), ' ', TORCH_VERSION, ' ', __VERSION__, ' ', sha256_file("/proc/self/exe")))};
}

std::vector<std::string> differences(const std::vector<Identity>& ranks) {
  std::vector<std::string> lines;
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    std::vector<std::string> parts;
    for (const auto& part : kParts)
      if (ranks[rank].*part.of != ranks[0].*part.of)
        parts.push_back(concat(part.name, " is ", ranks[rank].*part.of, ", of rank 0 ", ranks[0].*part.of));
    if (!parts.empty()) lines.push_back(concat("rank ", rank, " (", ranks[rank].host, "): ", join(parts, "; ")));
  }
  return lines;
}

std::vector<Identity> meet(ProcessGroup& member, const fed::Experiment& experiment) {
  member.post(concat("identity/", member.rank()), record::write(identity_of(experiment)).dump());
  std::vector<Identity> ranks;
  for (int rank = 0; rank < member.launched(); ++rank) {
    const auto source = concat("the identity of rank ", rank);
    const Json json = parse_json(member.wait_for(concat("identity/", rank)), source);
    ranks.push_back(record::read<Identity>(JsonView(json, source)));
  }
  const auto lines = differences(ranks);
  for (const auto& line : lines)
    if (member.leads()) log::error("[cluster] ", line);
  EK_CHECK(lines.empty(), kConfig, "ranks that must be alike differ: ", join(lines, " | "));
  for (size_t rank = 1; member.leads() && rank < ranks.size(); ++rank)
    if (ranks[rank].processor != ranks[0].processor)
      log::warning("[cluster] rank ", rank, " has another processor (", ranks[rank].processor, " beside ",
                   ranks[0].processor, "): bits depend on where a client trains");
  return ranks;
}

}  // namespace evenkeel::cluster
