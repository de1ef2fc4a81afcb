/// \file  Defines what server and node agree on before a run begins: the server offers the run's full config, and the
/// node answers with its budget and its number of rows. The server keeps to the agreed values (examples, K_c, r_c) for
/// the whole run, whatever the node reports later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "fed/round/server.h"
#include "flower/federation/content_digests.h"
#include "methods/described_method.h"

namespace evenkeel::flower {

/// The server's offer to a node: a run, and the client that the node would be.
struct Offer {
  std::string run;     ///< name of the run, unique among all runs
  int64_t client = 0;  ///< id of the client
  std::string config;  ///< the settled config as TOML, without names of files (offered_text())
  std::string base;    ///< model_digest() of the server's model; empty if the server has no weights
  std::string sites;   ///< sites_digest() of the server's sites
  /// The text of the chat template and named_tokens_digest(), if the run renders conversations. The template is the
  /// model's own or data.chat_template. Both are empty if the run renders none.
  std::string chat_template{}, named_tokens{};
  /// The budget and the number of rows with which the client has joined this run; 0 if it has not joined yet.
  double budget = 0;
  int64_t examples = 0;
  /// What the client's node had when it joined; empty if it has not joined yet. An offer to join a run under way has
  /// `budget`, but neither examples nor content.
  ContentDigests content{};
  /// The number of rounds that the server has committed. After a return to an earlier round it is less than before.
  int64_t round = 0;
  /// The server's method where it is a class in Python. A node whose class differs does not join.
  methods::MethodDigests method{};

  void visit(auto& field) {  // see base/format/record.h; so are the other visit() here
    field("run", run);
    field("client", client, 0);
    field("config", config);
    field("base", base);
    field("sites", sites);
    field.optional("chat_template", chat_template);
    field.optional("named_tokens", named_tokens);
    field.optional("budget", budget);
    field.optional("examples", examples);
    field.optional("content", content);
    field.optional("round", round);
    field.optional("method", method);
  }
};

/// A node's answer to an offer that it accepts.
struct Acceptance {
  int64_t client = 0;
  /// The budget beta_c, above 0, at most 1.
  double budget = 1;
  int64_t examples = 0;   ///< number of training rows |D_c|
  int64_t test_rows = 0;  ///< number of the node's own test rows; 0 if it gives no scores of them
  std::string program;    ///< version of the node's program, for information
  ContentDigests content{};
  /// Why the node gives no scores of test rows that it has; empty if it gives them or has none.
  std::string no_scores{};
  bool items = false;  ///< true: the node sends scores of single rows, as the run's config asks

  void visit(auto& field) {
    field("client", client, 0);
    field("budget", budget);
    field("examples", examples, 0);
    field.optional("test_rows", test_rows);
    field("program", program);
    field.optional("content", content);
    field.optional("no_scores", no_scores);
    field.optional("items", items);
  }
};

/// Tells a node that it becomes no client of a run.
struct JoinRefusal {
  std::string reason;
  void visit(auto& field) { field("reason", reason); }
};

/// Returns the SHA-256 over name, number of experts, input and output size of all sites. Equal digests mean that
/// adapters fit both models.
std::string sites_digest(const lora::Sites& sites);
/// Returns the SHA-256 over the special tokens that a chat template may refer to by name, such as bos_token and
/// eos_token.
std::string named_tokens_digest(const tokenizer::Tokenizer& tokenizer);
/// Replaces the path of data.chat_template in Offer::config: the template's text is in Offer::chat_template.
inline constexpr std::string_view kTemplateInOffer = "(the server's template)";
/// Replaces the path of lora.init in Offer::config. Only the server reads that adapter; its factors are part of the
/// broadcast.
inline constexpr std::string_view kAdapterAtServer = "(the server's adapter)";
/// Replace paths in Offer::config, because a node has its own: model.path by the first; data.path and the files of
/// `[data.files]` by the second.
inline constexpr std::string_view kModelAtServer = "(the server's model)", kRowsAtServer = "(the server's rows)";
/// Returns the SHA-256 over the names and fingerprints of the files of a model that count (fed/store/model_files.h),
/// without template files: the text of the run's template is in Offer::chat_template. Cost: one read of these files,
/// unless their fingerprints are cached.
std::string model_digest(const std::filesystem::path& folder);

/// Returns true if the run scores test rows that stay at the clients.
bool scores_clients_rows(const fed::RunConfig& config);

/// Returns `config` with other budgets. With a method of unequal ranks these clients also get the ranks that belong to
/// the budgets. Values in a client's own section are replaced too.
/// \param changed  budgets by client
fed::RunConfig with_budgets(const fed::RunConfig& config, const std::map<int64_t, double>& changed);

/// Returns the text of Offer::config: TOML without the paths of the server's model, rows, run folder and template, or
/// of any client's files.
std::string offered_text(const fed::RunConfig& config);

/// Returns a text that lists what a client sends in a round, and before the first one: kind, number of tensors, bytes.
/// The operator of a node reads it before agreeing.
std::string upload_summary(const fed::Server& server, const methods::ClientProfile& client);

}  // namespace evenkeel::flower
