/// \file  The options of an evaluation, the score of a task, and the prediction for a row.
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

namespace evenkeel {

class AnswerJournal;
class BertScorer;

enum class Decode { kGreedy, kBeam4 };
constexpr auto names(Decode) {
  return std::array{config::EnumName<Decode>{"greedy", Decode::kGreedy},
                    config::EnumName<Decode>{"beam4", Decode::kBeam4}};
}

/// Who routes. An adapter file holds factors and nothing of a router's options, so what other programs make of it is
/// scored beside what the run makes of it (fed/exchange/unexportable_routing.h).
enum class ServedBy {
  kRun,           ///< the run's own evaluation, with all that its method asks of a router
  kTransformers,  ///< a program that reads the checkpoint's key for gates: no phi, no rescaler, gates as trained
  kNativeGates,   ///< one that does not, as llama.cpp, vLLM and SGLang: the gates of the family's servers as well
};
constexpr auto names(ServedBy) {
  return std::array{config::EnumName<ServedBy>{"run", ServedBy::kRun},
                    config::EnumName<ServedBy>{"transformers", ServedBy::kTransformers},
                    config::EnumName<ServedBy>{"native_gates", ServedBy::kNativeGates}};
}

struct EvaluationOptions {
  PromptTemplate form = PromptTemplate::kPaper;
  Decode decode = Decode::kGreedy;
  int64_t max_new_tokens = 32;
  bool lowercase = false;         ///< headline accuracy from lower-cased output; both are always computed
  bool likelihood = true;         ///< also rank the allowed answers
  int64_t batch_size = 128;       ///< prompts generated at once
  KvType cache = KvType::kExact;  ///< storage of keys and values (docs/decisions/0050-evaluation.md)
  double cache_gib = 6;           ///< what they may take: a batch is as many prompts as fit, one at least
  int64_t cutoff = 0;             ///< tokens of a prompt with context, whose tail is cut; 0: what the positions leave
  const BertScorer* bert_scorer = nullptr;  ///< compares free text too; borrowed; null: no BERTScore
  /// Borrowed: what is answered is kept there by batch, and what it holds under `journal_key` is not answered again.
  AnswerJournal* journal = nullptr;
  std::string journal_key{};  ///< tells apart all that answers depend on, beside the task's name and rows

  void visit(auto& field) {  // but for what is said elsewhere in a config: the template, the encoder
    field("decode", decode, "greedy, or beam4: beam search of width 4");
    field("max_new_tokens", max_new_tokens, "longest answer in tokens, 1 or more");
    field("cutoff", cutoff,
          "tokens of a prompt with context, whose tail is cut; 0: all that the model's positions leave");
    field("batch_size", batch_size, "prompts generated at once, 1 or more");
    field("cache", cache,
          "storage of the keys and values that generation goes on from: float32, or bfloat16 in half of it");
    field("cache_gib", cache_gib,
          "memory that they may take, in GiB: fewer prompts at once where that many do not fit");
    field("lowercase", lowercase, "headline accuracy from lower-cased output");
    field("likelihood", likelihood, "also rank the allowed answers by likelihood");
  }
  void resolve(const config::Table& table) const {
    table.check_integer("max_new_tokens", max_new_tokens, 1, limits::kTokens);
    table.check_integer("cutoff", cutoff, 0, limits::kTokens);
    table.check_integer("batch_size", batch_size, 1, limits::kBatch);
    table.check_above_zero("cache_gib", cache_gib);
  }
};

/// What is measured of a task.
enum class AnswerKind { kChoice, kText, kLikelihood };

/// Whose test rows the score of a client is of.
enum class RowsOf { kOwn, kAll };
constexpr auto names(RowsOf) {
  return std::array{config::EnumName<RowsOf>{"own", RowsOf::kOwn}, config::EnumName<RowsOf>{"all", RowsOf::kAll}};
}

/// One client at whose budget something is scored, where clients have test rows of their own.
struct ClientOfScore {
  int64_t id = 0;
  std::optional<std::string> name{};  ///< where it has one
  RowsOf rows = RowsOf::kOwn;

  bool operator==(const ClientOfScore&) const = default;
  void visit(auto& field) {  // base/format/record.h
    field("client", id);
    field("client_name", name);
    field("rows_of", rows);
  }
};

/// Printed together, always: none of these means much alone. A task has the measures of its kind.
struct TaskScore {
  std::string task;
  double budget = 1.0;
  std::string reading{};  ///< of "at budget beta" with a rank method: a or b (docs/ambiguities.md, R25); else empty
  ServedBy served_by = ServedBy::kRun;  ///< any other: a score of the adapter as it is exported
  int64_t top_k = 0;
  int64_t rows = 0;
  int64_t questions = 0;          ///< different ones among the rows: what a score rests on; 0 where a record is older
  double accuracy = 0;            ///< correct / rows, the headline; an answer that cannot be read is wrong
  double accuracy_cased = 0;      ///< from the output as it is
  double accuracy_lowercase = 0;  ///< from the lower-cased output
  double invalid_rate = 0;        ///< rows without any allowed answer in the output
  double accuracy_valid = 0;      ///< correct / rows with a readable answer; 0 when there is none
  double accuracy_likelihood =
      0;  ///< gold answer has the largest log-likelihood among those the row allows; 0 when not asked for
  double chance = 0, majority = 0;
  AnswerKind kind = AnswerKind::kChoice;
  double exact_match = 0, f1 = 0;  ///< means over rows of the best over references (data/text_metrics.h)
  std::optional<double> bert_score =
      {};                   ///< F1 (rescaled if the scorer has a baseline), mean over rows; absent without a scorer
  double empty_rate = 0;    ///< rows answered with nothing
  int64_t context_cut = 0;  ///< rows whose context lost its tail
  double nll = 0;         ///< mean negative log-likelihood (natural log) of the answers' tokens, over all rows together
  double perplexity = 0;  ///< exp(nll)
  int64_t answer_tokens = 0;                 ///< what that mean is over
  int64_t cut = 0;                           ///< rows cut at the cutoff or the model's positions
  std::optional<ClientOfScore> client = {};  ///< absent: of nobody in particular
  std::vector<int64_t> missing_clients =
      {};  ///< whose rows it lacks: merged of a federation's nodes, some of them lost
  double seconds = 0;

  void visit(auto& field) {  // base/format/record.h; the keys that the kind of task has
    field("task", task);
    field("budget", budget);
    field.optional("reading", reading);
    visit_served(field);
    if (field.holds("client", client.has_value())) (client ? *client : client.emplace()).visit(field);
    field("top_k", top_k);
    field("rows", rows);
    field.optional("questions", questions);
    if (field.holds("missing_clients", !missing_clients.empty())) field("missing_clients", missing_clients);
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
    field("chance", chance);
    field("majority", majority);
  }
  void visit_likelihood(auto& field) {
    kind = AnswerKind::kLikelihood;
    field("nll", nll);
    field("perplexity", perplexity);
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
  }
};

/// What a model answered to one row, and what was made of it.
struct Prediction {
  std::string output;     ///< generated text up to a second "### Response:" (free text: any such title), stripped
  std::string extracted;  ///< answer read from it; empty when there is none
  std::string gold;
  std::string ranked;                        ///< most likely answer; empty when ranking is off
  std::vector<std::string> references = {};  ///< free text: the accepted answers
  double exact_match = 0, f1 = 0;            ///< free text: the best over references
  std::optional<double> bert_score = {};
  double nll = 0;             ///< likelihood: sum over the answer's tokens
  int64_t answer_tokens = 0;  ///< 0: the row was cut before its answer

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

}  // namespace evenkeel
