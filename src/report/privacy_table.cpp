#include "report/privacy_table.h"

#include <algorithm>
#include <optional>

#include "base/plain/number_text.h"
#include "privacy/signal.h"

namespace evenkeel::report {
namespace {

void add(Table& table, const records::RunRecords& run, int64_t round, const RoundPrivacy& line) {
  const auto amount = [&](std::string text) { return line.simulated ? concat('(', text, ')') : text; };
  table.add({run.label, std::to_string(round), line.protects, amount(fixed(line.epsilon, 4)),
             line.epsilon_pld ? amount(fixed(*line.epsilon_pld, 4)) : "-", concat(line.delta), fixed(line.noise, 4),
             concat(line.clip), line.signal ? fixed(*line.signal, 3) : "-", line.ended.empty() ? "-" : line.ended});
}

}  // namespace

std::optional<RoundPrivacy> privacy_of(const fed::RoundRecord& round) {
  if (const auto& own = round.privacy)
    return RoundPrivacy{"clients",       own->epsilon, own->delta,     own->noise,
                        own->clip,       own->signal,  own->simulated, own->ended_by.value_or(""),
                        own->epsilon_pld};
  std::optional<RoundPrivacy> line;
  for (const auto& client : round.clients) {
    if (!client.privacy) continue;
    if (!line) line.emplace(RoundPrivacy{.protects = "rows"});
    line->epsilon = std::max(line->epsilon, client.privacy->epsilon);
    line->delta = std::max(line->delta, client.privacy->delta);
    line->noise = std::min(line->noise, client.privacy->noise);
    line->clip = std::max(line->clip, client.privacy->clip);
    if (const auto own = client.privacy->signal) line->signal = std::min(*own, line->signal.value_or(*own));
    line->simulated = line->simulated || client.privacy->simulated;
  }
  return line;
}

Table privacy_table(std::span<const records::RunRecords> runs, bool all_rounds) {
  Table table{
      .title =
          concat("privacy; epsilon: spent so far, in brackets where it is simulated and protects nobody; by loss: ",
                 "of the loss distribution, for comparison, no budget is checked with it; signal: ",
                 "norm of the sum over that of its noise, below ", privacy::kMostlyNoise, " it is mostly noise"),
      .head = {"run", "round", "protects", "epsilon", "by loss", "delta", "noise", "clip", "signal", "ended by"},
      .keys = 3};
  for (const auto& run : runs)
    for (auto round = run.rounds.begin(); round != run.rounds.end(); ++round) {
      const auto line = privacy_of(*round);
      if (line && (all_rounds || std::next(round) == run.rounds.end())) add(table, run, round->round, *line);
    }
  return table;
}

}  // namespace evenkeel::report
