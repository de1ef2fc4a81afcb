#include <algorithm>

#include "report/client_scores.h"
#include "report/page_parts.h"

namespace evenkeel::report::page {
namespace {

OrderedJson client_json(const Source& source, const ClientResult& one) {
  OrderedJson json{{"client", one.who},
                   {"budget", one.budget},
                   {"budget_name", source.name(one.budget)},
                   {"task", one.task},
                   {"mode", one.rank_eval_mode}};
  const auto add_score = [&](const char* key, const std::optional<scoring::TaskScore>& score) {
    if (score) json[key] = rounded(headline(*score));
  };
  add_score("before", one.before);
  add_score("own", one.own);
  add_score("all", one.all);
  add(json, "gain", one.gain());
  const auto& any = one.own ? one.own : one.all;
  json["decimals"] = any && any->kind == scoring::AnswerKind::kLikelihood ? 3 : 1;
  if (one.own) json["rows"] = one.own->rows;
  if (one.own) json["questions"] = questions_of(*one.own);
  return json;
}

OrderedJson run_clients_json(const Source& source, size_t run, std::span<const ClientResult> results) {
  GainCounts counts;
  OrderedJson clients = OrderedJson::array();
  for (const auto& one : results) {
    if (const auto gain = one.gain()) counts.add(*gain, *one.own);
    clients.push_back(client_json(source, one));
  }
  return {{"run", run}, {"counts", counts.text()}, {"clients", std::move(clients)}};
}

struct ClientGain {
  const ClientResult* client;
  double gain;
};

/// Returns the gains of the clients of one run against the first, largest first.
std::vector<ClientGain> gains_of(const RunClientScores& first, const RunClientScores& other) {
  std::vector<ClientGain> gains;
  for (const auto& one : first.results)
    if (const auto* same = other.find(one)) gains.push_back({&one, gain_between(*one.own, *same->own)});
  std::stable_sort(gains.begin(), gains.end(), [](const auto& x, const auto& y) { return x.gain > y.gain; });
  return gains;
}

OrderedJson gains_json(const Source& source, const RunClientScores& first, const RunClientScores& other) {
  GainCounts counts;
  OrderedJson clients = OrderedJson::array();
  for (const auto& [client, gain] : gains_of(first, other)) {
    counts.add(gain, *client->own);
    clients.push_back({{"client", client->who},
                       {"budget_name", source.name(client->budget)},
                       {"task", client->task},
                       {"gain", rounded(gain)}});
  }
  return {{"run", other.run},
          {"title", concat(other.label, " against ", first.label)},
          {"counts", counts.text()},
          {"clients", std::move(clients)}};
}

}  // namespace

OrderedJson clients_json(const Source& source) {
  OrderedJson json{{"runs", OrderedJson::array()}, {"against_first", OrderedJson::array()}};
  for (size_t i = 0; i < source.runs.size(); ++i)
    if (const auto results = client_results(source.runs[i].evaluations); !results.empty())
      json["runs"].push_back(run_clients_json(source, i, results));
  const auto scores = run_client_scores(source.runs);
  if (source.runs.size() < 2) return json;
  for (size_t i = 1; i < scores.size(); ++i)
    if (auto gains = gains_json(source, scores[0], scores[i]); !gains["clients"].empty())
      json["against_first"].push_back(std::move(gains));
  return json;
}

}  // namespace evenkeel::report::page
