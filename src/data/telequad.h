/// \file  Which questions of TeleQuAD train and which test. Its file is read by tasks/telequad.cpp.
/// Source: TeleQuAD v4 (Ericsson, CC BY-ND 4.0): extractive questions on 3GPP specifications and telecom web pages, in
/// a format like SQuAD's. The file is read as it was published; splits exist in memory only.
#pragma once

#include <array>
#include <cstdint>

#include "base/format/config_table.h"

namespace evenkeel {

/// What training and testing share. The UB-SMoE paper trains on 1,018 of the 4,262 answerable questions and tests on
/// 1,003, and does not say which (docs/ambiguities.md, R33).
enum class TelequadSplit {
  kOrder,      ///< documents 1-137 train (1,018 questions), 139-272 test (1,003): the paper's sizes by a rule of ours
  kDocuments,  ///< documents at random: specs, but no context, on both sides
  kSpecs,      ///< specs and web pages at random: neither
  kQuestions,  ///< questions at random: contexts too
};
constexpr auto names(TelequadSplit) {
  return std::array{config::EnumName<TelequadSplit>{"order", TelequadSplit::kOrder},
                    config::EnumName<TelequadSplit>{"documents", TelequadSplit::kDocuments},
                    config::EnumName<TelequadSplit>{"specs", TelequadSplit::kSpecs},
                    config::EnumName<TelequadSplit>{"questions", TelequadSplit::kQuestions}};
}

struct TelequadConfig {
  TelequadSplit split = TelequadSplit::kOrder;
  int64_t split_seed = 42;
  double train_share = 0.5;
  bool impossible = false;
  void visit(auto& field) {
    field(
        "split", split,
        "order: documents 1-137 train, 139-272 test, the paper's 1,018 and 1,003 questions; or at random by documents, "
        "specs, questions");
    field("split_seed", split_seed, "random splits: which side a group falls on, 0 or more");
    field("train_share", train_share,
          "random splits: questions that train, in (0, 1]; groups are taken whole, as long as they fit");
    field("impossible", impossible, "keep the questions flagged is_impossible too; their answer is: unanswerable");
  }
  void resolve(const config::Table& table) const {
    table.check_integer("split_seed", split_seed, 0, limits::kAny);
    table.check_share("train_share", train_share);
  }
};

}  // namespace evenkeel
