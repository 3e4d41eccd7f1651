// decode FOLDER IDS [COUNT]: the likeliest COUNT tokens (16) after the prompt IDS, "1,2,3", by the bundle of one device in
// FOLDER; no partc, no Python. The bundle holds a whole model: one sub-module, from token ids to logits.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "tvm_library.hpp"

namespace ffi = tvm::ffi;
using ffi::json::Array;
using ffi::json::Object;
using Ids = std::vector<int64_t>;

namespace {

#ifdef __aarch64__
constexpr char kProcessor[] = "aarch64";
#else
constexpr char kProcessor[] = "x86_64";
#endif

/** One of the two files that describe the bundle of a device. */
Object read_json(const std::string& folder, const std::string& file) {
  std::stringstream text;
  text << std::ifstream(folder + "/" + file).rdbuf();
  if (text.str().empty()) throw std::runtime_error("no " + file + " in " + folder);
  return ffi::json::Parse(text.str()).cast<Object>();
}

/** A model of one sub-module, with the states of one request of one sequence. */
class Model {
 public:
  explicit Model(const std::string& folder) {
    const Object build = read_json(folder, "build.json"), placement = read_json(folder, "placement.json");
    if (build["target"].cast<ffi::String>() != "tvm" || placement["ring"].cast<Array>().size() != 1)
      throw std::runtime_error("not the bundle of a whole model, by the target tvm: " + folder);
    limits_ = build["model"].cast<Object>();
    part_ = build["submodules"].cast<Array>()[0].cast<Object>();
    name_ = part_["name"].cast<ffi::String>();
    const auto engine = build["engine"].cast<Object>();
    const auto options = engine["tvm"].cast<Object>();
    const std::string platform = options["platform"].cast<ffi::String>();
    if (engine["provider"].cast<ffi::String>() != "cpu" || platform.rfind(kProcessor, 0) != 0)
      throw std::runtime_error("the library is not for this processor, " + std::string(kProcessor) + ", but for " + platform);
    const auto functions = options["functions"].cast<Object>();
    const auto function = functions[ffi::String(name_)].cast<Object>();
    for (const ffi::Any& entry : function["entries"].cast<Array>())
      if (partc::numbers(entry)[0] == 1) rows_.push_back(partc::numbers(entry)[1]);
    std::sort(rows_.begin(), rows_.end());
    machine_ = partc::load_library(folder + "/" + std::string(part_["file"].cast<ffi::String>()));
    for (const ffi::Any& state : part_["states"].cast<Array>()) states_.push_back(zeros(state.cast<Object>()));
    partc::Tensors tensors;
    for (const ffi::Any& file : part_["weights"].cast<Array>())
      tensors.merge(partc::read_tensors(folder + "/" + std::string(file.cast<ffi::String>())));
    for (const ffi::Any& name : function["weights"].cast<Array>()) weights_.push_back(tensors.at(name.cast<ffi::String>()));
  }

  /** One step: the likeliest token after `ids`, which follow all that came before. */
  int64_t step(const Ids& ids) {
    if (position_ + (int64_t)ids.size() > limits_["max_sequence"].cast<int64_t>())
      throw std::runtime_error("prompt and answer are longer than max_sequence");
    const int64_t vocabulary = limits_["vocab_size"].cast<int64_t>();
    if (ids.empty() || std::any_of(ids.begin(), ids.end(), [&](int64_t id) { return id < 0 || id >= vocabulary; }))
      throw std::runtime_error("ids are numbers from 0 to " + std::to_string(vocabulary - 1));
    const auto fits = std::find_if(rows_.begin(), rows_.end(), [&](int64_t rows) { return rows >= (int64_t)ids.size(); });
    Ids index(ids.size());
    for (size_t place = 0; place < ids.size(); ++place) index[place] = place;
    const std::map<std::string, ffi::Tensor> given = {
        {"position", whole({1}, {position_})},
        {"length", whole({1}, {(int64_t)ids.size()})},
        {"index", whole({*fits}, index)},
    };
    std::vector<ffi::Tensor> arguments;
    for (const ffi::Any& input : part_["inputs"].cast<Array>()) {
      const auto found = given.find(input.cast<ffi::String>());
      arguments.push_back(found != given.end() ? found->second : whole({1, *fits}, ids));
    }
    arguments.insert(arguments.end(), states_.begin(), states_.end());
    arguments.insert(arguments.end(), weights_.begin(), weights_.end());
    const ffi::Tensor logits = partc::call(*machine_, name_ + "_b1_s" + std::to_string(*fits), arguments)[0];
    position_ += ids.size();
    const float* first = static_cast<const float*>(logits.data_ptr());
    return std::max_element(first, first + logits.numel()) - first;
  }

 private:
  /** A tensor of whole numbers, zeros behind those that are given. */
  static ffi::Tensor whole(const Ids& shape, const Ids& values) {
    ffi::Tensor tensor = partc::make_tensor(shape, {kDLInt, 64, 1});
    std::copy(values.begin(), values.end(), static_cast<int64_t*>(tensor.data_ptr()));
    return tensor;
  }

  /** A state of float32 for one sequence: its first axis is the batch. In panels 16 positions lie side by side. */
  static ffi::Tensor zeros(const Object& state) {
    Ids shape = {1};
    const auto list = state["shape"].cast<Array>();
    for (size_t axis = 1; axis < list.size(); ++axis) shape.push_back(list[axis].cast<int64_t>());
    if (state["layout"].cast<ffi::String>() == "panels") shape = {1, shape[1], (shape[2] + 15) / 16, shape[3], 16};
    return partc::make_tensor(shape, {kDLFloat, 32, 1});
  }

  Object part_, limits_;
  std::string name_;
  Ids rows_;
  std::optional<ffi::Module> machine_;
  std::vector<ffi::Tensor> states_, weights_;
  int64_t position_ = 0;
};

}  // namespace

int main(int count, char** words) {
  if (count < 3) return std::cerr << "usage: decode FOLDER IDS [COUNT]\n", 2;
  try {
    Model model(words[1]);
    Ids ids;
    std::stringstream prompt(words[2]);
    for (std::string word; std::getline(prompt, word, ',');) ids.push_back(std::stoll(word));
    for (int left = count > 3 ? std::stoi(words[3]) : 16; left > 0; --left) {
      ids = {model.step(ids)};
      std::cout << ids[0] << (left > 1 ? " " : "\n") << std::flush;
    }
  } catch (const std::invalid_argument&) {
    return std::cerr << "IDS and COUNT are whole numbers\n", 1;
  } catch (const std::exception& error) {
    return std::cerr << error.what() << "\n", 1;
  }
}
