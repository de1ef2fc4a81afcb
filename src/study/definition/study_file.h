/// \file  Reads the study file: `[study]` with its arms.
///
///   [study]
///   base = "configs/demo.toml"      # relative to the study file
///   set = ["train.rounds=5"]        # of all arms
///   seeds = [1, 2, 3]
///   reference = "fedit"
///   endpoint = "log_likelihood"
///   [[study.arm]]
///   name = "fedit"
///   set = ["method.name=fedit"]
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "study/definition/study_state.h"

namespace evenkeel::study {

inline constexpr int64_t kMostRuns = 10'000;  ///< largest number of runs of a study

/// `[[study.arm]]`
struct ArmSection {
  std::string name;
  std::vector<std::string> set;
  void visit(auto& field) {
    field("name", name, "name of the arm, also of its folder: letters, digits, - and _, dots between digits");
    field("set", set, "settings of this arm alone, each as after --set");
  }
};

/// `[study]`
struct StudySection {
  std::string name, base, reference;
  std::vector<std::string> set;
  std::vector<int64_t> seeds;
  Endpoint endpoint{};
  std::vector<std::string> free;
  std::vector<ArmSection> arm;
  void visit(auto& field) {
    field("name", name, "name of the study; empty: the file's name without .toml");
    field("base", base, "config that every run starts from, relative to the study file");
    field("set", set,
          "settings of all arms on top of the base config, each as after --set; --set and then the settings of an arm "
          "come after them");
    field("seeds", seeds, "seeds; every arm runs once with each of them");
    field("reference", reference, "name of the arm that others are compared with; empty: the first");
    field("endpoint", endpoint, "measure that arms are compared by");
    field("free", free, "keys or sections in which arms may differ, although paired comparisons require equal ones");
    field("arm", arm, "");
  }
  void resolve(const config::Table& table);
};

/// A study file, read and checked; the base config is not opened.
struct StudyFile {
  StudySection study;
  std::filesystem::path base;  ///< study.base, relative to the working folder or absolute
  void visit(auto& field) { field("study", study, ""); }

  /// Reads a study file. \throws kIo, kConfig naming file, line, key and the allowed values
  static StudyFile load(const std::filesystem::path& file);
  /// Returns the file as TOML with every key, and with `other_base` as the base.
  std::string text(const std::string& other_base) const;
  /// Returns the arms as study.json holds them.
  std::vector<Arm> arms() const;
};

}  // namespace evenkeel::study
