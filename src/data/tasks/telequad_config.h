/// \file  Selects which questions of TeleQuAD are training rows and which are test rows: the section
/// [data.telequad]. telequad.cpp reads the file.
/// Source: TeleQuAD v4 (Ericsson, CC BY-ND 4.0), extractive questions on 3GPP specifications and telecom web pages, in
/// a format similar to SQuAD's. The published file is read unchanged; splits exist in memory only.
#pragma once

#include <array>
#include <cstdint>

#include "base/format/config_table.h"

namespace evenkeel::data {

/// Selects how questions are split, and thereby what training and test rows may share. The UB-SMoE paper trains on
/// 1,018 of the 4,262 answerable questions and tests on 1,003, but does not name them (docs/ambiguities.md, R33).
enum class TelequadSplit {
  /// Documents 1-137 are for training (1,018 questions), documents 139-272 for tests (1,003 questions). The sizes are
  /// the paper's; the rule is this project's.
  kOrder,
  kDocuments,  ///< random by document; both sides may share specifications, but no contexts
  kSpecs,      ///< random by specification or web page; both sides share neither
  kQuestions,  ///< random by question; both sides may share contexts
};
constexpr auto names(TelequadSplit) {
  return std::array{config::EnumName<TelequadSplit>{"order", TelequadSplit::kOrder},
                    config::EnumName<TelequadSplit>{"documents", TelequadSplit::kDocuments},
                    config::EnumName<TelequadSplit>{"specs", TelequadSplit::kSpecs},
                    config::EnumName<TelequadSplit>{"questions", TelequadSplit::kQuestions}};
}

/// The config section `[data.telequad]`. visit() documents the keys.
struct TelequadConfig {
  TelequadSplit split = TelequadSplit::kOrder;
  int64_t split_seed = 42;
  double train_share = 0.5;
  bool impossible = false;
  void visit(auto& field) {
    field("split", split,
          "order (train: documents 1-137, test: 139-272, the paper's 1,018 and 1,003 questions), or at random by "
          "documents, specs or questions");
    field("split_seed", split_seed, "random splits: seed, 0 or more");
    field("train_share", train_share,
          "random splits: largest share of the questions to train on, in (0, 1]; groups are not divided");
    field("impossible", impossible, "also keep the questions flagged is_impossible, with the answer: unanswerable");
  }
  /// Checks the values. \throws kConfig naming the key.
  void resolve(const config::Table& table) const {
    table.check_integer("split_seed", split_seed, 0, limits::kAny);
    table.check_share("train_share", train_share);
  }
};

}  // namespace evenkeel::data
