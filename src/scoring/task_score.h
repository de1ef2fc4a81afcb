/// \file  Defines the options of an evaluation, the score of a task, and the prediction for a row.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/format/config_table.h"
#include "base/format/limits.h"
#include "data/prompt.h"
#include "nn/attention/kv_cache.h"

namespace evenkeel::scoring {

class AnswerJournal;
class BertScorer;

/// Selects how answers are generated: greedily, or by beam search of width 4.
enum class Decode { kGreedy, kBeam4 };
constexpr auto names(Decode) {
  return std::array{config::EnumName<Decode>{"greedy", Decode::kGreedy},
                    config::EnumName<Decode>{"beam4", Decode::kBeam4}};
}

/// Selects the program whose routing is evaluated. An adapter file does not contain router options, so another program
/// may compute different scores from the exported adapter than the run does (fed/exchange/unexportable_routing.h).
enum class ServedBy {
  kRun,  ///< the run itself, with the method's router options
  /// transformers: no phi (UB-SMoE), no rescaler (A3SMoE; docs/glossary.md), and gate weights as trained where a key of
  /// config.json asks for them (GateRule::key), else those of the family.
  kTransformers,
  kNativeGates,  ///< as kTransformers, with gate weights as in GateRule::servers, where these differ
};
constexpr auto names(ServedBy) {
  return std::array{config::EnumName<ServedBy>{"run", ServedBy::kRun},
                    config::EnumName<ServedBy>{"transformers", ServedBy::kTransformers},
                    config::EnumName<ServedBy>{"native_gates", ServedBy::kNativeGates}};
}

/// Options of evaluate_task().
struct EvaluationOptions {
  data::PromptTemplate form = data::PromptTemplate::kPaper;
  Decode decode = Decode::kGreedy;
  int64_t max_new_tokens = 32;
  /// True: the headline accuracy is computed from lower-cased output. Both variants are always recorded.
  bool lowercase = false;
  bool likelihood = true;                 ///< true: answers are also scored and ranked by likelihood
  int64_t batch_size = 128;               ///< prompts generated together
  nn::KvType cache = nn::KvType::kExact;  ///< dtype of cached keys and values (docs/decisions/0050-evaluation.md)
  double cache_gib = 6;  ///< memory limit of the cache in GiB; reduces the batch to the prompts that fit, at least one
  /// Longest prompt in tokens; the context of a longer prompt is truncated. 0: the model's number of positions.
  int64_t cutoff = 0;
  const BertScorer* bert_scorer = nullptr;  ///< scores free text too, borrowed; null: no BERTScore
  /// Stores answered batches, borrowed. Batches that it holds under `journal_key` are not computed again. Null: no
  /// journal.
  AnswerJournal* journal = nullptr;
  std::string journal_key{};  ///< must name everything that answers depend on, including task and rows

  void visit(auto& field) {  // the template and the encoder have other config sections
    field("decode", decode, "decoding: greedy, or beam4 (beam search of width 4)");
    field("max_new_tokens", max_new_tokens, "largest number of generated tokens per answer, 1 or more");
    field("cutoff", cutoff,
          "largest number of tokens of a prompt, whose context is cut at its end; 0: what the model's positions allow");
    field("batch_size", batch_size, "number of prompts generated at the same time, 1 or more");
    field("cache", cache, "dtype of the KV cache: float32, or bfloat16 in half the memory");
    field("cache_gib", cache_gib,
          "largest memory of the KV cache in GiB, > 0; it limits the number of prompts generated at the same time");
    field("lowercase", lowercase, "compute the headline accuracy from lower-cased output");
    field("likelihood", likelihood, "also compute the likelihood of the answers, and rank the allowed answers by it");
  }
  void resolve(const config::Table& table) const {
    table.check_integer("max_new_tokens", max_new_tokens, 1, limits::kTokens);
    table.check_integer("cutoff", cutoff, 0, limits::kTokens);
    table.check_integer("batch_size", batch_size, 1, limits::kBatch);
    table.check_above_zero("cache_gib", cache_gib);
  }
};

/// Selects what is measured: choices, free text, or the likelihood of the answers.
enum class AnswerKind { kChoice, kText, kLikelihood };

/// Selects the test rows of a client's score: its own, or all rows.
enum class RowsOf { kOwn, kAll };
constexpr auto names(RowsOf) {
  return std::array{config::EnumName<RowsOf>{"own", RowsOf::kOwn}, config::EnumName<RowsOf>{"all", RowsOf::kAll}};
}

/// Identifies the client of a score, in runs whose clients have their own test rows.
struct ClientOfScore {
  int64_t id = 0;
  std::optional<std::string> name{};  ///< name of the client, if it has one
  RowsOf rows = RowsOf::kOwn;

  bool operator==(const ClientOfScore&) const = default;
  void visit(auto& field) {  // base/format/record.h
    field("client", id);
    field("client_name", name);
    field("rows_of", rows);
  }
};

/// Score of a task. It contains the measures of its AnswerKind, which are always printed together.
struct TaskScore {
  std::string task;
  double budget = 1.0;
  /// Rank evaluation mode of a rank method, "a" or "b" (docs/ambiguities.md, R25); else empty.
  std::string rank_eval_mode{};
  ServedBy served_by = ServedBy::kRun;  ///< other than kRun: score of the exported adapter
  int64_t top_k = 0;                    ///< experts per token
  int64_t rows = 0;
  int64_t questions = 0;          ///< number of distinct questions among the rows
  double accuracy = 0;            ///< headline: correct answers / rows; an output without an allowed answer is wrong
  double accuracy_cased = 0;      ///< accuracy from the unchanged output
  double accuracy_lowercase = 0;  ///< accuracy from the lower-cased output
  double invalid_rate = 0;        ///< share of rows whose output contains no allowed answer
  /// Correct answers / rows whose output contains an allowed answer; 0 if there are none.
  double accuracy_valid = 0;
  /// Share of rows whose gold answer is the likeliest allowed answer; 0 if not requested.
  double accuracy_likelihood = 0;
  double chance = 0, majority = 0;  ///< accuracy of random answers, and of always giving the most frequent answer
  /// Mean over rows of the log-likelihood of the correct answer in nats: the sum of its tokens' log-probabilities. For
  /// free text the answer is the first reference. Rows that keep no answer after truncation, or whose reference is
  /// longer than max_new_tokens, are left out. Absent without `likelihood`, and if no row has one.
  std::optional<double> log_likelihood = {};
  /// Number of rows that log_likelihood is the mean of. 0: asked for, but no row has one. Absent without
  /// `likelihood`.
  std::optional<int64_t> likelihood_rows = {};
  AnswerKind kind = AnswerKind::kChoice;
  double exact_match = 0, f1 = 0;  ///< means over rows of the best value over references (data/text_metrics.h)
  /// Mean F1 over rows, rescaled if the scorer has a baseline; absent without a scorer.
  std::optional<double> bert_score = {};
  double empty_rate = 0;      ///< share of rows with an empty answer
  int64_t context_cut = 0;    ///< rows whose context was truncated
  double nll = 0;             ///< mean negative log-likelihood (natural log) per answer token, over all rows
  double perplexity = 0;      ///< exp(nll)
  int64_t answer_tokens = 0;  ///< number of answer tokens
  int64_t cut = 0;            ///< rows truncated at the cutoff or at the model's positions
  std::optional<ClientOfScore> client = {};  ///< client of the score; absent: not the score of a single client
  /// Ids of the clients whose rows are missing, because their nodes were lost or give no scores.
  std::vector<int64_t> missing_clients = {};
  /// The missing clients whose nodes give no scores in any round, because they have too few test rows.
  std::vector<int64_t> without_scores = {};
  double seconds = 0;

  /// Returns true if the score is of the rows of all clients that give scores.
  bool is_complete() const { return missing_clients == without_scores; }

  void visit(auto& field) {  // writes the keys of the AnswerKind
    field("task", task);
    field("budget", budget);
    field("rank_eval_mode", rank_eval_mode);
    visit_served(field);
    if (field.holds("client", client.has_value())) (client ? *client : client.emplace()).visit(field);
    field("top_k", top_k);
    field("rows", rows);
    field("questions", questions);
    if (field.holds("missing_clients", !missing_clients.empty())) field("missing_clients", missing_clients);
    if (field.holds("without_scores", !without_scores.empty())) field("without_scores", without_scores);
    if (field.holds("exact_match", kind == AnswerKind::kText))
      visit_text(field);
    else if (field.holds("nll", kind == AnswerKind::kLikelihood))
      visit_likelihood(field);
    else
      visit_choice(field);
    field("seconds", seconds);
  }

 private:
  void visit_served(auto& field) {
    bool as_exported = served_by != ServedBy::kRun;
    if (!field.holds("as_exported", as_exported)) return;
    field("as_exported", as_exported);
    field("served_by", served_by);
  }
  void visit_choice(auto& field) {
    kind = AnswerKind::kChoice;
    field("accuracy", accuracy);
    field("accuracy_cased", accuracy_cased);
    field("accuracy_lowercase", accuracy_lowercase);
    field("invalid_rate", invalid_rate);
    field("accuracy_valid", accuracy_valid);
    field("accuracy_likelihood", accuracy_likelihood);
    visit_log_likelihood(field);
    field("chance", chance);
    field("majority", majority);
  }
  void visit_likelihood(auto& field) {
    kind = AnswerKind::kLikelihood;
    field("nll", nll);
    field("perplexity", perplexity);
    visit_log_likelihood(field);
    field("answer_tokens", answer_tokens);
    field("cut", cut);
  }
  void visit_text(auto& field) {
    kind = AnswerKind::kText;
    field("exact_match", exact_match);
    field("f1", f1);
    field("bert_score", bert_score);
    field("empty_rate", empty_rate);
    field("context_cut", context_cut);
    visit_log_likelihood(field);
  }
  void visit_log_likelihood(auto& field) {
    field("log_likelihood", log_likelihood);
    field("likelihood_rows", likelihood_rows);
  }
};

/// Scores of the single rows of a task, in the order of the rows. A list is empty if its measure does not exist for the
/// kind of the task.
struct ItemScores {
  /// Log-likelihood of the correct answer in nats, rounded to 1e-6. Rows whose answer has no likelihood are left out.
  std::vector<double> log_likelihood;
  std::vector<int64_t> correct;  ///< 1: the answer is correct (choices) or matches exactly (free text); else 0
  std::vector<double> f1;        ///< free text: best value over references

  bool operator==(const ItemScores&) const = default;
  void visit(auto& field) {  // base/format/record.h
    field("log_likelihood", log_likelihood);
    field("correct", correct);
    field("f1", f1);
  }
};

/// Answer of a model to one row, and its scores.
struct Prediction {
  /// Generated text before the next "### Response:" (free text: the next "### "), stripped, and without what the chat
  /// template writes before an answer.
  std::string output;
  std::string extracted;                     ///< answer found in the output; empty: none found
  std::string gold;                          ///< correct answer of the row
  std::string ranked;                        ///< likeliest allowed answer; empty when ranking is off
  std::vector<std::string> references = {};  ///< accepted answers of free text
  double exact_match = 0, f1 = 0;            ///< free text: best value over references
  std::optional<double> bert_score = {};
  double nll = 0;  ///< negative log-likelihood, a sum over the correct answer's tokens, unlike TaskScore::nll; in nats
  /// Tokens of the correct answer, or of the first reference for free text. 0: its likelihood is not known.
  int64_t answer_tokens = 0;
  /// File and number of the row (data::RowPlace), and its question (data::question_text()). They are set where the rows
  /// are, and are not part of messages and journals.
  std::string file = {}, question = {};
  int64_t row = -1;

  void visit(auto& field) {  // base/format/record.h
    field("output", output);
    field("extracted", extracted);
    field("gold", gold);
    field("ranked", ranked);
    field("references", references);
    field("exact_match", exact_match);
    field("f1", f1);
    field("bert_score", bert_score);
    field("nll", nll);
    field("answer_tokens", answer_tokens);
  }
};

}  // namespace evenkeel::scoring
