/// \file  What server and node agree to before a run begins: the run itself, word for word, and what the node brings to
/// it. What counts of a client afterwards (its examples, K_c and r_c) is what was agreed here, whatever it says later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "fed/round/server.h"

namespace evenkeel {

/// From the server: a run, and which client of it the node would be.
struct Offer {
  std::string run;     ///< names it among all: no two runs have the same
  int64_t client = 0;  ///< id
  std::string config;  ///< resolved, as TOML, without the names of anybody's files
  std::string base;    ///< model_digest() of the server's; empty where it has the shapes alone
  std::string sites;   ///< sites_digest()
  /// Where the run renders conversations: the template's text, the model's own or data.chat_template, and
  /// named_tokens_digest(). Empty: the server is of a version that sends none.
  std::string chat_template{}, named_tokens{};

  void visit(auto& field) {  // base/format/record.h, as below
    field("run", run);
    field("client", client, 0);
    field("config", config);
    field("base", base);
    field("sites", sites);
    field.optional("chat_template", chat_template);
    field.optional("named_tokens", named_tokens);
  }
};

/// From a node: what it brings.
struct Acceptance {
  int64_t client = 0;
  double budget = 1;
  int64_t examples = 0;   ///< |D_c|
  int64_t test_rows = 0;  ///< rows of its own that it can be scored on
  std::string program;    ///< its version, for the record

  void visit(auto& field) {
    field("client", client, 0);
    field("budget", budget);
    field("examples", examples, 0);
    field.optional("test_rows", test_rows);
    field("program", program);
  }
};

/// SHA-256 over the names, dtypes and sizes of what is adapted: equal where adapters fit.
std::string sites_digest(const Sites& sites);
/// SHA-256 over bos_token, eos_token and the others that a template may write.
std::string named_tokens_digest(const Tokenizer& tokenizer);
/// Stands for the file of data.chat_template, whose text the offer brings.
inline constexpr std::string_view kTemplateInOffer = "(the server's template)";
/// SHA-256 over weights, config.json and tokenizer.json of a model's folder, by name. Cost: one read of them.
std::string model_digest(const std::filesystem::path& folder);

/// Where clients bring rows of their own, their files by a name that says nothing: each node has its own.
ExperimentConfig without_rows(ExperimentConfig config);

/// Whether the run scores rows that its clients keep to themselves.
bool scores_clients_rows(const ExperimentConfig& config);

/// `config`, settled, with that budget for the client, and with a rank method the rank that goes with it.
ExperimentConfig with_budget(ExperimentConfig config, int64_t client, double budget);

/// The text of Offer::config: without the paths of the server's rows, folder and template, and of any client.
std::string offered_text(ExperimentConfig config);

/// What a client may send in a round, and before the first one, for people to read before they agree: kind, tensors,
/// bytes.
std::string upload_summary(const Server& server, const ClientProfile& client);

}  // namespace evenkeel
