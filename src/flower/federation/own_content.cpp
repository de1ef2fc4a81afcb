#include "flower/federation/own_content.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/format/fingerprint.h"
#include "base/format/record.h"
#include "base/plain/files.h"
#include "base/plain/sealed.h"
#include "base/plain/text.h"
#include "crypto/secret.h"
#include "fed/run/experiment.h"
#include "fed/store/model_files.h"

namespace evenkeel::flower {
namespace {

constexpr size_t kSaltBytes = 32;

struct StoredSalt {
  std::string salt;
  void visit(auto& field) { field("salt", salt); }
};

/// Appends a text with its length, so that different lists of texts never give the same bytes.
void append(std::string& to, std::string_view text) { to += concat(text.size(), ':', text, '\n'); }

void append(std::string& to, std::span<const int64_t> numbers) {
  to.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}

/// Returns the SHA-256 over the tokens and targets of the examples, as a chain.
std::string digest_of(const std::vector<data::Example>& examples) {
  std::string digest;
  for (const auto& example : examples) {
    std::string text = concat(digest, ' ', example.ids.size(), ' ', example.first_target, ' ');
    append(text, example.ids);
    for (const auto& [begin, end] : example.between) append(text, std::array{begin, end});
    digest = sha256(text);
  }
  return digest;
}

std::string digest_of(const scoring::PreparedTask& tested) {
  std::string text;
  for (const auto& row : tested.rows()) {
    append(text, row.instruction);
    append(text, row.answer);
    for (const auto* list : {&row.options, &row.references}) {
      text += concat(list->size(), '\n');
      for (const auto& one : *list) append(text, one);
    }
  }
  return sha256(text);
}

/// Returns true if a file of a model's folder says how text becomes tokens.
bool is_of_tokenizer(std::string_view name) {
  constexpr std::array<std::string_view, 6> kWords = {"token", "vocab", "merges", "chat_template", ".jinja", ".model"};
  return std::any_of(kWords.begin(), kWords.end(), [&](auto word) { return name.find(word) != name.npos; });
}

std::string digest_of_files(const fs::path& folder, bool of_tokenizer) {
  std::string text;
  for (const auto& file : fed::model_files(folder))
    if (const auto name = fed::model_file_name(file, folder); is_of_tokenizer(name) == of_tokenizer)
      text += concat(name, ' ', fingerprint_of(file).digest, '\n');
  return sha256(text);
}

}  // namespace

fs::path salt_file(const fs::path& folder, const std::string& run) { return folder / concat(run, "-salt.json"); }

std::string salt_of_run(const fs::path& folder, const std::string& run) {
  if (folder.empty()) {
    static const std::string of_process = crypto::random_hex(kSaltBytes);
    return sha256(concat(of_process, ' ', run));
  }
  const auto file = salt_file(folder, run);
  if (path_exists(file)) {
    const Json json = read_sealed(file);
    return record::read<StoredSalt>({json, file.string(), kCheckpoint}).salt;
  }
  make_folders(folder);
  StoredSalt stored{crypto::random_hex(kSaltBytes)};
  write_sealed(file, record::write(stored));
  return stored.salt;
}

ContentDigests content_digests(const fed::Experiment& e, int64_t client, const scoring::PreparedTask* tested,
                               const std::string& salt) {
  const auto salted = [&](std::string_view kind, const std::string& digest) {
    return sha256(concat(salt, ' ', kind, ' ', digest));
  };
  const auto& folder = e.server.model_folder;
  return {.rows = salted("rows", digest_of(e.fabric.shards.examples.at(static_cast<size_t>(client)))),
          .tests = salted("tests", tested ? digest_of(*tested) : ""),
          .tested = tested ? static_cast<int64_t>(tested->rows().size()) : 0,
          .base = salted("base", digest_of_files(folder, false)),
          .tokenizer = salted("tokenizer", digest_of_files(folder, true))};
}

}  // namespace evenkeel::flower
