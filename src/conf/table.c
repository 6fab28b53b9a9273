#include <stdio.h>
#include <string.h>
#include "conf/table.h"

#define AT(field) offsetof(struct conf, field)
#define BIG 9e15                                         /* below 2^53: exact in a double */
#define FALLS "train.schedule cosine linear polynomial"  /* rates that depend on how long the run is */

/* ---- words that files stand for: the lists of Makefile.am ------------------------------------------------------- */

static const char sources[] =
#define DATASET(x) #x " "
#include "registry.inc"
    "";
static const char optimizers[] =
#define OPTIM(x) #x " "
#include "registry.inc"
    "";
static const char schedules[] =
#define SCHEDULE_WORD(x) #x " "
#include "registry.inc"
    "rows";
static const char rates[] =
#define RATE(x) #x " "
#include "registry.inc"
    "";
static const char partitions[] =
#define PARTITION(x) #x " "
#include "registry.inc"
    "";
static const char devices[] = "auto cpu "
#define BACKEND_WORD(x) #x " "
#include "registry.inc"
    "";
static const char transports[] = "auto "
#define TRANSPORT_WORD(x) #x " "
#include "registry.inc"
    "";

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* key, type, field, default, least and most or .words, .text */
const struct opt opt_table[] = {
    {"run.name", OPT_STRING, AT(run.name), "run", .text = "name of the run"},
    {"run.seed", OPT_INT, AT(run.seed), "1", 0, BIG,
     .bits = true, .text = "seed of initialisation, sample order, dropout and synthetic data"},
    {"run.directory", OPT_FILE, AT(run.directory), NULL, .written = true,
     .text = "run directory; the default is runs/NAME"},
    {"run.device", OPT_WORD, AT(run.device), "auto", .words = devices,
     .text = "device: auto takes the best there is; reference is the slow plain C backend"},
    {"run.transport", OPT_WORD, AT(run.transport), "auto", .words = transports,
     .text = "how ranks exchange tensors: mpi between processes, local between threads of one process; between GPUs "
             "nccl, or staged through the hosts' memory"},
    {"run.transfer_timeout", OPT_INT, AT(run.transfer_timeout), "0", 0, 86400,
     .text = "with nccl: a run ends when nothing moves between two GPUs for so many seconds (0 means 5 "
             "more than run.hang_timeout and at least 8, "
             "and 60 where ranks are on several hosts) although both have come to the transfer, or when the other "
             "rank does not answer for so long; how long a GPU computes does not matter, and time in which a "
             "rank's process was stopped does not count for itself; more is needed where one tensor takes so long "
             "on its way, or where a single rank may stand still, in a debugger for example"},
    {"run.hang_timeout", OPT_INT, AT(run.hang_timeout), "10", 0, 86400,
     .text = "a run ends with status 81 and the name of the rank when a process has not been heard of for so many "
             "seconds, or when nothing gets on in a step for so long and for five times the slowest step so far, "
             "thirty times as long before a rank's first step; 0: never, as when a rank is in a debugger"},
    {"run.rerun_every", OPT_INT, AT(run.rerun_every), "0", 0, BIG,
     .text = "every so many steps a step is computed twice before anything is updated, and the run ends with status 80 "
             "unless the loss and the norms of all gradients have the same bits both times: for hardware that "
             "computes wrongly without a word; 0: never"},
    {"run.nccl_max_ctas", OPT_INT, AT(run.nccl_max_ctas), "4", 1, 32,
     .text = "with nccl: blocks of threads that the transfers of one link may occupy, rounded down to a power of two; "
             "a send holds them until the other GPU has received, so more are faster for large tensors and leave less "
             "for kernels; each also costs 10 MiB of the GPU a neighbour and direction; two ranks on one GPU use at "
             "most 2"},
    {"run.allow_shared_gpu", OPT_BOOL, AT(run.allow_shared_gpu), "no",
     .text = "more ranks than GPUs on a host may share them: right results, no speed"},
    {"run.kernel_table", OPT_FILE, AT(run.kernel_table), NULL,
     .text = "on GPUs: file with the fastest library kernel for every layer; measured and written by rank 0 when it "
             "is missing, and read afterwards; one of another GPU or of other libraries is refused; without it "
             "kernels are chosen by the library's rules; the choice decides bits, so runs that are to agree to the "
             "bit want the same file"},
    {"run.try_compiled", OPT_BOOL, AT(run.try_compiled), "no",
     .text = "when run.kernel_table is measured, also try kernels that cuDNN compiles at each start: a second or "
             "two for each, then and in every run that uses one"},
    {"run.kernel_candidates", OPT_WORD, AT(run.kernel_candidates), "some", .words = "some all",
     .text = "when run.kernel_table is measured: some tries the first eight kernels that cuDNN's heuristics A name for "
             "a pass; all tries every one of theirs and of heuristics B, which takes several times as long"},
    {"run.graphs", OPT_BOOL, AT(run.graphs), "yes",
     .text = "on GPUs: record the kernels of each action once, before the first step, as a CUDA graph and replay it"},
    {"run.kernel_times", OPT_BOOL, AT(run.kernel_times), "yes",
     .text = "on GPUs: run kernels one by one in the first two steps and in every 32nd, for the account; no: every "
             "step is a replay, for the most speed, and the time of joined backward passes is divided evenly"},
    {"run.overlap_wgrad", OPT_BOOL, AT(run.overlap_wgrad), "no",
     .text =
         "on GPUs, with run.graphs: weight gradients run beside the input gradients of the layers before them, in "
         "a second branch of the recorded graph; takes a second workspace, and gradients are kept for longer; the "
         "bits stay the same; --plan counts these bytes, but foresees no gain: try a few steps with it and without; "
         "nothing changes where the two are not joined, see pipeline.backward"},
    {"run.threads", OPT_INT, AT(run.threads), "1", 1, 1024,
     .bits = true, .text = "computing threads of each rank; part of the numerics line, never derived from the machine"},
    {"run.init_from", OPT_FILE, AT(run.init_from), NULL,
     .text = "weights to begin with: a safetensors file, a folder with model.safetensors or its index, or a run "
             "directory, of which without weights.safetensors the newest checkpoint counts; F16, BF16 and F64 become "
             "F32, and what PyTorch's wrappers put before every name (module., _orig_mod., model.) does not count"},
    {"run.init_rename", OPT_TEXTS, AT(run.init_rename), NULL,
     .text = "rules \"PATTERN -> NAME\" for names in run.init_from, such as \"backbone.* -> *\": of each name the "
             "first rule that matches renames it, see WEIGHTS TO BEGIN WITH"},
    {"run.init_missing", OPT_TEXTS, AT(run.init_missing), NULL,
     .text = "patterns of weights that run.init_from may lack or have in another shape, such as \"fc\": these begin "
             "with new values"},
    {"run.init_extra", OPT_TEXTS, AT(run.init_extra), NULL,
     .text = "patterns of tensors in run.init_from that are left out where the model has none of that name"},
    {"run.overwrite", OPT_BOOL, AT(run.overwrite), "no",
     .text = "use a run directory that already holds a run, and replace that; its weights go when new ones are "
             "written"},
    {"run.resume", OPT_WORD, AT(run.resume), "no", .words = "no yes anyway",
     .text = "go on with the run of the run directory, from its newest sound checkpoint, or from the start if it has "
             "neither checkpoints nor weights; anyway: also where settings have changed so that the bits become others "
             "than those of a run that was never interrupted"},
    {"run.evaluate", OPT_BOOL, AT(run.evaluate), "no",
     .text = "only evaluate the weights of run.init_from, on the test samples"},
    {"run.predict", OPT_FILE, AT(run.predict), NULL, .written = true,
     .text = "only predict: what the network says of each test sample goes into FILE.csv, FILE.jsonl or FILE.npy, "
             "or of volumes as label maps into FOLDER/, without labels; the weights are those of run.init_from, or of "
             "the run directory; see PREDICTIONS"},
    {"run.predict_tensor", OPT_STRING, AT(run.predict_tensor), NULL,
     .text = "predictions: the values of this tensor of the network, by its name in --print-graph; features, for "
             "example"},
    {"run.dump_gradients", OPT_FILE, AT(run.dump_gradients), NULL, .written = true,
     .text = "write the first step's gradients to this safetensors file"},
    {"run.trace", OPT_FILE, AT(run.trace), NULL, .written = true,
     .text = "write what every rank did in some steps to this file, for Perfetto"},
    {"run.trace_steps", OPT_INT, AT(run.trace_steps), "3", 1, 1000,
     .text = "how many steps run.trace holds, from the second one on; of a run of one step that one"},
    {"model.network", OPT_STRING, AT(model.network), NULL,
     .bits = true, .text = "network that comes with the program: see NETWORKS"},
    {"model.graph", OPT_FILE, AT(model.graph), NULL,
     .text = "file with graph text, instead of a network; it decides input, classes and loss"},
    {"model.input", OPT_INTS, AT(model.input), NULL, 1, 1 << 24, .bits = true,
     .text = "shape of one sample, channels first; the default is the network's own, and only mlp takes another "
             "number of dimensions"},
    {"model.classes", OPT_INT, AT(model.classes), NULL, 1, 1 << 24,
     .bits = true, .text = "width of the output; the default is the network's own"},
    {"model.hidden", OPT_INTS, AT(model.hidden), NULL, 1, 1 << 24, .bits = true,
     .text = "of mlp: widths of the hidden layers"},
    {"model.dropout", OPT_REAL, AT(model.dropout), "0", 0, 0.999, .bits = true,
     .text = "of mlp: dropout after each hidden layer"},
    {"model.zero_init_residual", OPT_BOOL, AT(model.zero_init_residual), "no",
     .bits = true, .text = "ResNets: the last batch norm of each block begins at zero"},
    {"model.small_stem", OPT_BOOL, AT(model.small_stem), "no",
     .bits = true, .text = "ResNets, for pictures as small as 32x32: the first convolution has 3x3 points and stride 1 "
                           "and no pooling follows, so that layer1 sees every pixel"},
    {"data.source", OPT_WORD, AT(data.source), NULL, .words = sources, .bits = true, .text = "where samples come from"},
    {"data.labels", OPT_WORD, AT(data.labels), NULL, .words = "class onehot vector map", .bits = true,
     .text = "targets: classes, one-hot or other vectors, or a class at each point of the output; the default is "
             "onehot for mse, map for dice, dice_ce and data.source nifti, otherwise class"},
    {"data.train_images", OPT_FILE, AT(data.train_images), NULL, .of = "data.source idx npy images cifar nifti",
     .text = "file of training samples; of images a folder of classes, a list, or tar archives; of cifar also the "
             "folder with its files; of nifti the folder that holds dataset.json, a list of files, or one file"},
    {"data.train_labels", OPT_FILE, AT(data.train_labels), NULL, .of = "data.source idx npy nifti",
     .text = "file of training targets; of nifti a list of label files beside a list of volumes, or one file"},
    {"data.test_images", OPT_FILE, AT(data.test_images), NULL, .of = "data.source idx npy images cifar nifti",
     .text = "file of test samples; of images a folder, a list or archives, of which data.train_images numbers the "
             "classes"},
    {"data.test_labels", OPT_FILE, AT(data.test_labels), NULL, .of = "data.source idx npy nifti",
     .text = "file of test targets"},
    {"data.validation", OPT_REAL, AT(data.validation), "0", 0, 0.9, .of = "data.source idx npy images cifar",
     .bits = true,
     .text = "without data.test_images: this share of the training samples, such as 0.1, is kept to test with, as much "
             "of each class, drawn by run.seed; the others are trained; 0: none"},
    {"data.shuffle", OPT_BOOL, AT(data.shuffle), NULL,
     .bits = true,
     .text = "a new order every epoch; the default is yes for idx, images, cifar and nifti, otherwise no"},
    {"data.mean", OPT_REALS, AT(data.mean), NULL, -1e9, 1e9,
     .of = "data.source idx npy images cifar nifti",
     .bits = true, .text = "of files: subtracted from every pixel: one value, or one a channel"},
    {"data.std", OPT_REALS, AT(data.std), NULL, 1e-12, 1e9,
     .of = "data.source idx npy images cifar nifti",
     .bits = true, .text = "of files: every pixel is divided by it: one value, or one a channel"},
    {"data.resize", OPT_INTS, AT(data.resize), NULL, 1, 65536,
     .of = "data.source idx npy images cifar",
     .bits = true, .text = "scale to this height and width, bilinear, smoothed where images shrink; of images and "
                           "npy also one number, the length of the shorter side; without it images are scaled until "
                           "they just cover model.input; to that they are cropped"},
    {"data.pad", OPT_INTS, AT(data.pad), NULL, 1, 65536,
     .of = "data.source idx npy images cifar",
     .bits = true, .text = "pad with zeros to this height and width"},
    {"data.channels", OPT_INT, AT(data.channels), NULL, 1, 4096, .of = "data.source idx npy images cifar",
     .bits = true, .text = "repeat a single channel so often; of images 1 makes grey ones and 3 coloured ones, and the "
                           "model decides"},
    {"data.upright", OPT_BOOL, AT(data.upright), "yes", .of = "data.source images",
     .bits = true, .text = "turn images as the tag Orientation of their EXIF or XMP says, like Pillow's exif_transpose;"
                           " no: take them as they are stored, like torchvision"},
    {"data.scaled_decoding", OPT_BOOL, AT(data.scaled_decoding), "no", .of = "data.source images",
     .bits = true, .text = "decode JPEG files at a half, a quarter or an eighth of their size where that is not "
                           "smaller than what they are scaled to, as Pillow's Image.draft does: other pixels, and "
                           "several times as fast for photographs that are much larger than model.input"},
    {"data.damaged", OPT_WORD, AT(data.damaged), "error", .words = "error skip", .of = "data.source images",
     .bits = true, .text = "what becomes of an image that cannot be decoded: error ends the run with status 65 and the "
                           "file's name; skip puts the next sound one of its class in its place, and the run says how "
                           "many and why the first"},
    {"data.augment", OPT_TEXTS, AT(data.augment), NULL, .of = "data.source idx npy images cifar",
     .bits = true,
     .text = "what training makes of each picture, at random, entry by entry, see AUGMENTATIONS: such as "
             "{\"random_crop padding=4\", \"horizontal_flip\"}"},
    {"data.spacing", OPT_REALS, AT(data.spacing), NULL, 1e-3, 1e3, .of = "data.source nifti", .bits = true,
     .text = "size of voxels in mm to which volumes are resampled, trilinear, and labels by the nearest voxel: one "
             "number, or one along x, y and z; without it voxels stay as they are"},
    {"data.size", OPT_INTS, AT(data.size), NULL, 0, 1 << 24, .of = "data.source nifti", .bits = true,
     .text = "voxels to which volumes are then cropped or padded with zeros, about their centre: one number, or "
             "one along x, y and z; 0: as they are, but not smaller than what the model takes; the default is what "
             "the model takes; of what is larger than that, training draws parts, and the parts that cover it are "
             "test samples"},
    {"data.axes", OPT_WORD, AT(data.axes), "xyz", .words = "xyz zyx", .of = "data.source nifti", .bits = true,
     .text = "the order of a sample's axes: xyz as nibabel and MONAI have them, zyx as SimpleITK and nnU-Net do; x "
             "goes to the right, y ahead and z up"},
    {"data.intensity", OPT_WORD, AT(data.intensity), "minmax", .words = "none minmax zscore zscore_nonzero percentile",
     .of = "data.source nifti", .bits = true,
     .text = "what the values of each channel of a volume become: none: nothing; minmax: 0 to 1, after padding; "
             "zscore: mean 0 and deviation 1, before it; zscore_nonzero: the same of voxels that are not 0, which "
             "alone change; percentile: zscore of what is clipped at the percentiles 0.5 and 99.5; data.mean and "
             "data.std come after that"},
    {"data.label_map", OPT_TEXTS, AT(data.label_map), NULL, .of = "data.source nifti", .bits = true,
     .text = "what labels become, the first that fits: LABEL=CLASS, FIRST-LAST=CLASS, or *=CLASS for all others, "
             "such as {\"37-38=1\", \"*=0\"}; or binary: 1 for all above 0; without it labels are classes"},
    {"data.foreground", OPT_REAL, AT(data.foreground), "0.33", 0, 1, .of = "data.source nifti", .bits = true,
     .text = "the share of drawn parts that lie about a voxel of a class other than 0: one of the classes that the "
             "volume has, and one of its voxels"},
    {"data.flip", OPT_TEXTS, AT(data.flip), NULL, .of = "data.source nifti", .bits = true,
     .text = "axes along which training turns every other sample round, at random, such as {\"y\", \"z\"}; not x "
             "where labels tell left from right"},
    {"data.folds", OPT_INT, AT(data.folds), "0", 0, 1000, .of = "data.source nifti", .bits = true,
     .text = "of so many folds of data.train_images, data.fold is the test set, and the others are trained; 0: "
             "there are none"},
    {"data.fold", OPT_INT, AT(data.fold), "0", 0, 999, .of = "data.source nifti", .bits = true,
     .text = "which fold is the test set: the volumes that come k-th by name, where k divided by data.folds leaves "
             "this number"},
    {"data.cache", OPT_SIZES, AT(data.cache), NULL, 0, BIG, .of = "data.source nifti",
     .text = "memory in which each part of the data keeps volumes as they are after cropping, in each process that "
             "reads; where not all of them find room, there is one more, the last that was read; the default is "
             "1GiB"},
    {"data.samples", OPT_INT, AT(data.samples), "0", 0, BIG, .bits = true,
     .text = "how many training samples, of a file the first ones, of a folder of pictures every so many, of "
             "nifti volumes, whatever parts they have; 0 means all of a file, or as many as a "
             "synthetic run needs, of which only those that fit into 256 MiB differ: then they come round again"},
    {"data.test_samples", OPT_INT, AT(data.test_samples), "0", 0, BIG,
     .text = "how many test samples are evaluated, of a file the first ones, of a folder of pictures every so many, "
             "of nifti volumes, whatever parts they have; 0 means all of a file, and no synthetic test set"},
    {"data.prefetch", OPT_INT, AT(data.prefetch), "2", 1, 4096, .text = "micro-batches read ahead"},
    {"data.workers", OPT_INT, AT(data.workers), "1", 0, 256,
     .text = "threads of each rank that read and decode what is read ahead, sample by sample, so not more than "
             "data.prefetch micro-batches have samples; 0: the rank itself, when it needs them; they run on cores "
             "that the launcher has and that no rank is bound to, and where there are none on the rank's own"},
    {"train.batch_size", OPT_INT, AT(train.batch_size), "32", 1, 1 << 24,
     .bits = true, .text = "samples of one optimizer step; where there are fewer in all, these (see last_batch)"},
    {"train.last_batch", OPT_WORD, AT(train.last_batch), "short", .words = "short drop fill",
     .text = "what becomes of the samples at the end of an epoch that do not fill a batch: short makes a smaller batch "
             "of them, drop leaves them out, fill adds the first samples of the next epoch; decides bits unless "
             "batches fill each epoch"},
    {"train.split_size", OPT_INT, AT(train.split_size), "0", 0, 1 << 24,
     .bits = true, .text = "samples of one micro-batch; 0 means the whole batch"},
    {"train.gradient_groups", OPT_INT, AT(train.gradient_groups), "1", 1, 4096,
     .text = "a power of two: the batch's micro-batches are cut into so many blocks, whose gradients are added two by "
             "two; decides bits (numerics line)"},
    {"train.steps", OPT_INT, AT(train.steps), "0", 0, BIG, .bits_of = FALLS,
     .text = "stop after so many optimizer steps, whatever train.epochs says; which samples a step has does not depend "
             "on it"},
    {"train.epochs", OPT_INT, AT(train.epochs), "0", 0, BIG, .bits_of = FALLS,
     .text = "how many passes over the training samples"},
    {"train.evaluate", OPT_BOOL, AT(train.evaluate), "yes",
     .text = "with no, the test set is not looked at while training, nor at the end"},
    {"train.evaluate_every", OPT_INT, AT(train.evaluate_every), "0", 0, BIG,
     .live = true, .text = "evaluate on the test set every so many steps; 0 means not by steps; at the end in any "
                           "case"},
    {"train.evaluate_epochs", OPT_INT, AT(train.evaluate_epochs), "0", 0, BIG,
     .live = true, .text = "evaluate on the test set behind every so many epochs: 1 does so after each"},
    {"train.confusion", OPT_BOOL, AT(train.confusion), "no",
     .text = "each evaluation also counts which class was taken for which: confusion.csv, with the accuracy of each "
             "class, and confusion.png in the run directory"},
    {"train.patience", OPT_INT, AT(train.patience), "0", 0, BIG,
     .text = "end the run when so many evaluations in a row were not better, by checkpoint.best, which is then loss "
             "unless it says otherwise, than the best one, whose checkpoint stays; 0: never"},
    {"train.evaluate_batch_size", OPT_INT, AT(train.evaluate_batch_size), "0", 0, 1 << 24,
     .text = "samples an evaluation step; 0 means batch_size"},
    {"train.loss", OPT_WORD, AT(train.loss), NULL, .words = "mse cross_entropy dice dice_ce !batch_dice",
     .why = "Dice over the batch is no mean over samples: it needs the sums of all micro-batches before the first "
            "backward pass; dice has one of each sample",
     .bits = true, .text = "loss function; dice and dice_ce (Dice and cross-entropy) are of each sample, for maps of "
                           "classes; the default is that of model.graph, otherwise cross_entropy"},
    {"train.dice_power", OPT_INT, AT(train.dice_power), "1", 1, 2, .of = "train.loss dice dice_ce", .bits = true,
     .text = "Dice: power of probabilities and targets in the denominator"},
    {"train.dice_background", OPT_BOOL, AT(train.dice_background), "yes", .of = "train.loss dice dice_ce",
     .bits = true, .text = "Dice: class 0 counts, too"},
    {"train.label_smoothing", OPT_REAL, AT(train.label_smoothing), "0", 0, 1, .of = "train.loss cross_entropy",
     .bits = true,
     .text = "so much of every target is spread evenly over all classes, in training and evaluation: torch's "
             "label_smoothing"},
    {"train.scores", OPT_TEXTS, AT(train.scores), NULL,
     .text = "score operators beside the loss, such as mean_absolute_error; their results are in all reports"},
    {"train.optimizer", OPT_WORD, AT(train.optimizer), "sgd", .words = optimizers,
     .bits = true, .text = "optimizer: the rule that makes new weights of gradients"},
    {"train.learning_rate", OPT_REAL, AT(train.learning_rate), "0.01", 0, 1e6, .bits = true, .live = true,
     .text = "learning rate"},
    {"train.momentum", OPT_REAL, AT(train.momentum), "0", 0, 1, .of = "train.optimizer sgd rmsprop",
     .bits = true, .text = "of sgd and rmsprop: momentum"},
    {"train.nesterov", OPT_BOOL, AT(train.nesterov), "no", .of = "train.optimizer sgd",
     .bits = true, .text = "of sgd: Nesterov momentum"},
    {"train.beta1", OPT_REAL, AT(train.beta1), "0.9", 0, 0.999999999, .of = "train.optimizer adamw adam lamb",
     .bits = true, .text = "of adamw, adam and lamb: what the running mean of the gradients keeps at each step"},
    {"train.beta2", OPT_REAL, AT(train.beta2), "0.999", 0, 0.999999999,
     .of = "train.optimizer adamw adam lamb rmsprop",
     .bits = true, .text = "of adamw, adam, lamb and rmsprop: what the running mean of their squares keeps at each "
                           "step; of rmsprop torch calls it alpha, and has 0.99"},
    {"train.epsilon", OPT_REAL, AT(train.epsilon), "1e-08", 1e-30, 1e6,
     .of = "train.optimizer adamw adam lamb rmsprop",
     .bits = true, .text = "of adamw, adam, lamb and rmsprop: added to the root of that mean, by which steps are "
                           "divided"},
    {"train.weight_decay", OPT_REAL, AT(train.weight_decay), "0", 0, 1e6,
     .bits = true, .text = "weight decay, on all parameters; torch's default for AdamW is 0.01"},
    {"train.freeze", OPT_TEXTS, AT(train.freeze), NULL, .bits = true,
     .text = "weights that stay as they are, see PARAMETER GROUPS: names of layers (layer1, layer1.0), or patterns "
             "(layer*.bias) of names, classes or operators"},
    {"train.learning_rate_factors", OPT_TEXTS, AT(train.learning_rate_factors), NULL, .bits = true,
     .text = "\"PATTERN=FACTOR\": the weights that a pattern matches have another learning rate; of several that match "
             "the last one counts"},
    {"train.weight_decay_factors", OPT_TEXTS, AT(train.weight_decay_factors), NULL, .bits = true,
     .text = "\"PATTERN=FACTOR\": the same for weight decay; {\"*.bias=0\", \"batch_norm=0\"} has none on biases and "
             "norms"},
    {"train.ema", OPT_REAL, AT(train.ema), "0", 0, 0.999999999, .bits = true,
     .text = "keep an exponential average of the weights, of which each step keeps so much, such as 0.999: evaluations "
             "and weights.safetensors have the averages, checkpoints both; 0: none"},
    {"train.clip_norm", OPT_REAL, AT(train.clip_norm), "0", 0, 1e9,
     .bits = true, .text = "gradients are scaled down to this global norm; 0 means never"},
    {"train.clip_value", OPT_REAL, AT(train.clip_value), "0", 0, 1e9, .bits = true,
     .text = "then each element of a gradient is kept within plus and minus this; 0 means any"},
    {"train.nonfinite", OPT_WORD, AT(train.nonfinite), "stop", .words = "stop skip rollback",
     .text = "where the loss or a gradient is not finite: stop ends the run, skip goes on without that step's update, "
             "rollback goes back to the newest checkpoint and leaves out the batches from there to that step"},
    {"train.nonfinite_limit", OPT_INT, AT(train.nonfinite_limit), "3", 1, BIG,
     .text = "nonfinite skip: so many steps in a row are skipped, the next one ends the run; nonfinite rollback: so "
             "often the run goes back to the same checkpoint"},
    {"train.schedule", OPT_WORD, AT(train.schedule), "constant", .words = rates,
     .bits = true, .live = true, .text = "learning rate schedule: how the rate changes after the warm-up"},
    {"train.schedule_by", OPT_WORD, AT(train.schedule_by), "step", .words = "step epoch", .bits = true, .live = true,
     .text = "what the learning rate schedule counts: optimizer steps, or epochs, so that the rate stays the same "
             "within each epoch"},
    {"train.learning_rate_end", OPT_REAL, AT(train.learning_rate_end), "0", 0, 1e6, .bits = true, .live = true,
     .of = FALLS, .text = "schedules cosine, linear and polynomial: the rate to which these fall over the run"},
    {"train.power", OPT_REAL, AT(train.power), "1", 0, 100, .bits = true, .live = true,
     .of = "train.schedule polynomial", .text = "schedule polynomial: its power"},
    {"train.milestones", OPT_INTS, AT(train.milestones), NULL, 1, BIG, .bits = true, .live = true,
     .of = "train.schedule step",
     .text = "schedule step: after these steps or epochs, counted from the end of the warm-up, the learning rate is "
             "multiplied by gamma"},
    {"train.step_size", OPT_INT, AT(train.step_size), "0", 0, BIG, .bits = true, .live = true,
     .of = "train.schedule step",
     .text = "schedule step: the learning rate is multiplied by gamma every so many steps or epochs; in place of "
             "milestones"},
    {"train.gamma", OPT_REAL, AT(train.gamma), NULL, 0, 1, .bits = true, .live = true, .of = "train.schedule step",
     .text = "schedule step: factor of the learning rate; the default is 0.1"},
    {"train.warmup_steps", OPT_INT, AT(train.warmup_steps), "0", 0, BIG, .bits = true, .live = true,
     .text = "warm-up: over so many steps the learning rate rises from warmup_factor times itself to itself; then the "
             "schedule begins"},
    {"train.warmup_epochs", OPT_INT, AT(train.warmup_epochs), "0", 0, BIG, .bits = true, .live = true,
     .text = "warm-up over so many epochs, in place of warmup_steps; the rate rises every step, or every epoch where "
             "schedule_by is epoch"},
    {"train.warmup_factor", OPT_REAL, AT(train.warmup_factor), "0.01", 0, 1, .bits = true, .live = true,
     .text = "warm-up: the first step's part of the learning rate"},
    {"train.batch_norm", OPT_WORD, AT(train.batch_norm), "micro", .words = "micro deferred frozen",
     .bits = true, .text = "running statistics: updated by every micro-batch, once a step, or never"},
    {"train.precision", OPT_WORD, AT(train.precision), "fp32", .words = "fp32 tf32 bf16 !fp16", .bits = true,
     .text = "arithmetic: fp32 everywhere, on GPUs also tf32 and bf16; tf32: products by TF32; bf16: activations in "
             "bfloat16, weights and sums in fp32"},
    {"pipeline.schedule", OPT_WORD, AT(pipeline.schedule), "1f1b", .words = schedules,
     .text = "order of forward and backward passes; rows: from a file, pipeline.rows"},
    {"pipeline.rows", OPT_FILE, AT(pipeline.rows), NULL,
     .text = "schedule rows: file with one row of actions a rank; a short last batch leaves out the micro-batches that "
             "it lacks, see mpstaged-schedule(5)"},
    {"pipeline.partition", OPT_WORD, AT(pipeline.partition), NULL, .words = partitions,
     .text = "how layers go to stages; the default is manual where there are stage sections, otherwise uniform"},
    {"pipeline.stages", OPT_INT, AT(pipeline.stages), NULL, 1, 4096,
     .text = "how many stages; the default is the number of stage sections under partition manual and where there is "
             "no mpirun, otherwise the number of ranks that each of pipeline.replicas has"},
    {"pipeline.ranks", OPT_INT, AT(pipeline.ranks), NULL, 1, 4096,
     .text = "where there is no mpirun: how many ranks each of pipeline.replicas has, as threads or to plan for; the "
             "default is one a stage"},
    {"pipeline.cores", OPT_INT, AT(pipeline.cores), NULL, 1, 65536,
     .text = "--plan=search: how many cores replicas, ranks and threads share, or how many GPUs replicas and ranks "
             "share; the default is those of the ranks that the configuration or mpirun asks for, or, where neither "
             "does, all cores that may be used, or one GPU"},
    {"pipeline.in_flight", OPT_INT, AT(pipeline.in_flight), NULL, 1, 65535,
     .text = "most micro-batches, or bundles, that a rank may keep for their backward pass; the default is what the "
             "schedule needs, see mpstaged-schedule(5)"},
    {"pipeline.bundle", OPT_INT, AT(pipeline.bundle), "1", 1, 65535,
     .text = "on CPUs: micro-batches that are sent and computed together in training; the results keep every bit, "
             "memory, messages "
             "and bubble are those of micro-batches as large as a bundle"},
    {"pipeline.backward", OPT_WORD, AT(pipeline.backward), "auto", .words = "auto joined split",
     .text = "gradients of inputs and weights in one pass, or apart so that the former are sent early"},
    {"pipeline.profile", OPT_FILE, AT(pipeline.profile), NULL,
     .text = "file of measured costs, made by --profile; without it costs are estimated; with --profile an earlier "
             "one, whose costs for other numbers of threads stand beside the new ones"},
    {"pipeline.profile_sizes", OPT_INTS, AT(pipeline.profile_sizes), NULL, 1, 1 << 24,
     .text =
         "--profile measures these micro-batch sizes; the default is a quarter, a half, all and twice the split size, "
         "but no single sample where a batch norm would see one value a channel"},
    {"pipeline.profile_spread", OPT_REAL, AT(pipeline.profile_spread), "2", 1, 1e9,
     .text = "--profile writes nothing, and nothing is planned with a profile, whose kernels took more than this many "
             "times their shortest times: other programs disturbed the machine; above 1.3 there is a warning"},
    {"pipeline.recompute", OPT_WORD, AT(pipeline.recompute), "none", .words = "none all auto",
     .text = "activations that are computed again in the backward pass instead of kept: none, all, or as few blocks as "
             "pipeline.max_memory asks for"},
    {"pipeline.recompute_layers", OPT_TEXTS, AT(pipeline.recompute_layers), NULL,
     .text = "layers that are recomputed in any case; a name stands for everything below it"},
    {"pipeline.recompute_stages", OPT_INTS, AT(pipeline.recompute_stages), NULL, 0, 4095,
     .text = "stages, counted from 0, that are recomputed in any case"},
    {"pipeline.replicas", OPT_INT, AT(pipeline.replicas), "1", 1, MAX_REPLICAS,
     .text = "copies of the whole pipeline that share each batch, a power of two that divides train.gradient_groups; "
             "there are this many times the ranks of one, on GPUs each with a GPU of its own"},
    {"pipeline.bucket_kib", OPT_INT, AT(pipeline.bucket_kib), "4096", 0, 1 << 30,
     .text = "replicas exchange gradients in buckets of about so many KiB, each as soon as its gradients are final; 0: "
             "all at once"},
    {"pipeline.reduce", OPT_WORD, AT(pipeline.reduce), "tree", .words = "tree nccl",
     .text = "what adds the gradients of replicas up: tree, whose bits are the same for any number of replicas, or on "
             "GPUs nccl, whose sums depend on that number, on buckets and stages, and on NCCL"},
    {"pipeline.shard_optimizer", OPT_WORD, AT(pipeline.shard_optimizer), "auto", .words = "auto yes no",
     .text = "each replica keeps the optimizer's state of its share of the weights alone, updates these and sends them "
             "to the others (ZeRO stage 1); the results keep every bit; auto: yes on CPUs, unless one weight is more "
             "than half of all that are trained"},
    {"pipeline.read_in_place", OPT_BOOL, AT(pipeline.read_in_place), "yes",
     .text = "on CPUs: replicas of one host read each other's gradients and weights where they lie, instead of sending "
             "them; the results keep every bit"},
    {"pipeline.max_memory", OPT_SIZES, AT(pipeline.max_memory), NULL, 0, BIG,
     .text = "memory that a rank may use: one size for all ranks, or one a rank of each replica; without it, on CPUs, "
             "the planner takes what the hosts have left for their ranks as the limit, and on GPUs there is none"},
    {"pipeline.speed", OPT_REALS, AT(pipeline.speed), NULL, 1e-6, 1e6,
     .text = "how fast the ranks' devices are, relative to the one that the costs are of; the default is 1 for all"},
    {"pipeline.no_split", OPT_TEXTS, AT(pipeline.no_split), NULL,
     .text = "blocks whose layers stay on one stage under auto, balanced, balanced_low_0 and sequential: names "
             "(layer1.0) or classes (Bottleneck)"},
    {"pipeline.count_bytes", OPT_WORD, AT(pipeline.count_bytes), "training", .words = "training weights",
     .text =
         "what balanced, balanced_low_0 and sequential go by: all that training keeps, or weights and statistics only"},
    {"checkpoint.every_steps", OPT_INT, AT(checkpoint.every_steps), "0", 0, BIG, .live = true,
     .text = "write a checkpoint every so many steps, and one of the last step; 0 means not by steps"},
    {"checkpoint.every_seconds", OPT_REAL, AT(checkpoint.every_seconds), "0", 0, 1e9, .live = true,
     .text = "write a checkpoint when so many seconds have passed since the last one, and one of the last step; 0 "
             "means not by time"},
    {"checkpoint.keep", OPT_INT, AT(checkpoint.keep), "3", 1, BIG, .live = true,
     .text = "how many checkpoints stay: the newest ones; an older one goes when the new one is on disk"},
    {"checkpoint.best", OPT_STRING, AT(checkpoint.best), NULL,
     .text = "a score of the evaluations, such as accuracy or loss: write a checkpoint after each evaluation that is "
             "the best so far, and keep that one in addition; loss and other errors are better when they are smaller"},
    {"service.progress", OPT_WORD, AT(service.progress), "auto", .words = "auto yes no",
     .live = true,
     .text = "progress line; auto shows it where standard error, or mpirun's, is a terminal and the job not in the "
             "background"},
    {"service.log_every", OPT_INT, AT(service.log_every), "1", 0, BIG,
     .live = true, .text = "a log line every so many steps; 0 means none"},
    {"service.tensorboard", OPT_BOOL, AT(service.tensorboard), "no",
     .text = "event files for TensorBoard in the run directory: loss, accuracy, learning rate, speed, waiting, "
             "evaluations"},
    {"service.control", OPT_WORD, AT(service.control), "auto", .words = "auto yes no",
     .text = "the socket control.sock in the run directory, by which mpstagectl(1) reaches the run; auto trains "
             "without it where the file system has no sockets, and says so"},
    {"service.metrics", OPT_STRING, AT(service.metrics), NULL,
     .text = "address and port where Prometheus reads the figures of the run, such as \"127.0.0.1:9464\" or "
             "\"[::1]:9464\"; \":9464\" is 127.0.0.1, and port 0 a free one, which the log names; anybody who reaches "
             "the address can read them; no, as by default: nowhere"},
    {"service.metrics_every", OPT_INT, AT(service.metrics_every), "1", 1, BIG,
     .text = "in metrics.jsonl a line of every so many steps; those of the first step and of the last one before any "
             "other line are there, too"},
    {"service.stages_every", OPT_INT, AT(service.stages_every), "1", 0, BIG,
     .text = "in metrics.jsonl the stages of every so many steps; 0 means never; the first step's are there in any "
             "case"},
    {NULL},
};

int opt_count(void)
{
    int n = 0;
    while (opt_table[n].key) n++;
    return n;
}

int opt_find(const char *key, size_t n)
{
    for (int i = 0; opt_table[i].key; i++)
        if (strlen(opt_table[i].key) == n && !memcmp(opt_table[i].key, key, n)) return i;
    return -1;
}

bool opt_section(const char *name)
{
    size_t n = strlen(name);
    for (const char *s = OPT_SECTIONS; *s; s += strcspn(s, " "), s += strspn(s, " "))
        if (strcspn(s, ", ") == n && !memcmp(s, name, n)) return true;
    return false;
}

/* ---- did you mean ...? ----------------------------------------------------------------------------------------- */

/* In its own section first, then in the others: names may say the same in two. */
const char *opt_nearest(const char *key, size_t n)
{
    const char *dot = memchr(key, '.', n), *name = dot ? dot + 1 : key, *found = NULL;
    size_t section = (size_t)(name - key);
    struct nearest s = nearest_begin(name, n - section);
    for (int i = 0; opt_table[i].key; i++) {
        const char *own = strchr(opt_table[i].key, '.') + 1;
        bool elsewhere = (size_t)(own - opt_table[i].key) != section || memcmp(opt_table[i].key, key, section);
        if (nearest_try(&s, own, strlen(own), elsewhere)) found = opt_table[i].key;
    }
    return found;
}

const char *conf_nearest(const char *name) { return opt_nearest(name, strlen(name)); }

const char *opt_hint(const char *key, size_t n, char buf[OPT_HINT])
{
    const char *near = opt_nearest(key, n), *dot = memchr(key, '.', n);
    size_t section = dot ? (size_t)(dot + 1 - key) : 0, at = 0;
    *buf = 0;
    if (near) snprintf(buf, OPT_HINT, " (did you mean %s?)", near);
    for (int i = 0; !near && section && opt_table[i].key && at < OPT_HINT; i++) {
        if (strncmp(opt_table[i].key, key, section)) continue;
        if (!at) at = (size_t)snprintf(buf, OPT_HINT, ": %.*s has ", (int)section - 1, key);
        else at += (size_t)snprintf(buf + at, OPT_HINT - at, ", ");
        if (at < OPT_HINT) at += (size_t)snprintf(buf + at, OPT_HINT - at, "%s", opt_table[i].key + section);
    }
    if (at >= OPT_HINT) snprintf(buf, OPT_HINT, " (see mpstaged.conf(5))");
    return buf;
}

void opt_sections_try(struct nearest *s)
{
    for (const char *name = OPT_SECTIONS; *name; name += strcspn(name, " "), name += strspn(name, " "))
        nearest_try(s, name, strcspn(name, ", "), 0);
}
