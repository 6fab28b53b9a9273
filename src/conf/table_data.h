/* The options of section data: rows of the table in table.c, which includes this. */
    {"data.source", OPT_ENUM, AT(data.source), NULL, .words = sources, .bits = true, .text = "where samples come from"},
    {"data.labels", OPT_ENUM, AT(data.labels), NULL, .words = WORDS_LABELS(WORD_TEXT), .bits = true,
     .text = "targets: classes, one-hot or other vectors, or a class at each point of the output; the default is "
             "onehot for mse, map for dice, dice_ce and data.source nifti, otherwise class"},
    {"data.train", OPT_FILE, AT(data.train), NULL, .of = "data.source idx npy images cifar nifti",
     .text = "training samples: a file; for images a folder of classes, a list or tar archives, for cifar a folder, "
             "for nifti a folder with dataset.json, a list or a file"},
    {"data.train_labels", OPT_FILE, AT(data.train_labels), NULL, .of = "data.source idx npy nifti",
     .text = "file of training targets; for nifti a list of label files, in the order of the list of volumes, or "
             "one file"},
    {"data.test", OPT_FILE, AT(data.test), NULL, .of = "data.source idx npy images cifar nifti",
     .text = "test samples, in the form of data.train, which numbers the classes of images"},
    {"data.test_labels", OPT_FILE, AT(data.test_labels), NULL, .of = "data.source idx npy nifti",
     .text = "file of test targets"},
    {"data.validation", OPT_REAL, AT(data.validation), "0", 0, 0.9, .bits = true,
     .of = "data.source idx npy images cifar tokens text jsonl",
     .text = "without test data: share of the training samples, such as 0.1, held out for tests, the same of each "
             "class; drawn by run.seed; 0: none"},
    {"data.shuffle", OPT_BOOL, AT(data.shuffle), NULL,
     .bits = true,
     .text = "a new order in every epoch; the default is yes for idx, images, cifar, nifti, tokens, text and "
             "jsonl, otherwise no"},
    {"data.mean", OPT_REALS, AT(data.mean), NULL, -1e9, 1e9,
     .of = "data.source idx npy images cifar nifti",
     .bits = true, .text = "files: subtracted from every pixel: one value, or one per channel"},
    {"data.std", OPT_REALS, AT(data.std), NULL, 1e-12, 1e9,
     .of = "data.source idx npy images cifar nifti",
     .bits = true, .text = "files: every pixel is divided by it: one value, or one per channel"},
    {"data.resize", OPT_INTS, AT(data.resize), NULL, 1, 65536,
     .of = "data.source idx npy images cifar",
     .bits = true,
     .text = "scale to this height and width, bilinear with antialiasing; for images and npy also one number, the "
             "shorter side. By default images just cover model.input, to which they are cropped"},
    {"data.pad", OPT_INTS, AT(data.pad), NULL, 1, 65536,
     .of = "data.source idx npy images cifar",
     .bits = true, .text = "pad with zeros to this height and width"},
    {"data.channels", OPT_INT, AT(data.channels), NULL, 1, 4096, .of = "data.source idx npy images cifar",
     .bits = true,
     .text = "number of copies of a single channel; for images 1 makes grey and 3 coloured ones, by default what "
             "the model takes"},
    {"data.upright", OPT_BOOL, AT(data.upright), "yes", .of = "data.source images",
     .bits = true,
     .text = "turn images by the tag Orientation of EXIF or XMP, like Pillow's exif_transpose; no: keep them as "
             "stored, like torchvision"},
    {"data.scaled_decoding", OPT_BOOL, AT(data.scaled_decoding), "no", .of = "data.source images",
     .bits = true,
     .text = "decode JPEG files at 1/2, 1/4 or 1/8 of their size if that is still large enough, like Pillow's "
             "Image.draft; several times as fast for large photographs, but changes pixels and hence results"},
    {"data.damaged", OPT_ENUM, AT(data.damaged), "error", .words = WORDS_DAMAGED(WORD_TEXT), .of = "data.source images",
     .bits = true,
     .text = "an image that cannot be decoded: error ends the run with status 65, skip takes the next valid image "
             "of its class; the run reports the number of skipped ones and the first reason"},
    {"data.augment", OPT_TEXTS, AT(data.augment), NULL, .of = "data.source idx npy images cifar",
     .bits = true,
     .text = "random augmentations of each training picture, in order, such as {\"random_crop padding=4\", "
             "\"horizontal_flip\"}; see AUGMENTATIONS"},
    {"data.spacing", OPT_REALS, AT(data.spacing), NULL, 1e-3, 1e3, .of = "data.source nifti", .bits = true,
     .text = "voxel size in mm to which volumes are resampled, trilinear, labels by nearest neighbour: one number, "
             "or x, y and z; by default none"},
    {"data.size", OPT_INTS, AT(data.size), NULL, 0, 1 << 24, .of = "data.source nifti", .bits = true,
     .text = "voxels to which volumes are cropped or zero-padded, centred: one number, or x, y and z; 0: at least "
             "the model's input, the default: exactly that. Training draws parts of larger volumes; tests cover "
             "them with parts"},
    {"data.axes", OPT_ENUM, AT(data.axes), "xyz", .words = WORDS_AXES(WORD_TEXT),
     .of = "data.source nifti", .bits = true,
     .text = "order of a sample's axes: xyz as in nibabel and MONAI, zyx as in SimpleITK and nnU-Net; x points "
             "right, y ahead and z up"},
    {"data.intensity", OPT_ENUM, AT(data.intensity), "minmax", .words = WORDS_INTENSITY(WORD_TEXT),
     .of = "data.source nifti", .bits = true,
     .text = "normalisation of each channel of a volume: minmax to 0 to 1, after padding; zscore to mean 0 and "
             "deviation 1, before padding; zscore_nonzero of voxels other than 0; percentile: zscore after clipping "
             "at 0.5 and 99.5 %"},
    {"data.label_map", OPT_TEXTS, AT(data.label_map), NULL, .of = "data.source nifti", .bits = true,
     .text = "classes of labels, first match first: LABEL=CLASS, FIRST-LAST=CLASS, or *=CLASS for others, such as "
             "{\"37-38=1\", \"*=0\"}; or binary: 1 for all above 0. By default labels are classes"},
    {"data.train_text", OPT_TEXTS, AT(data.train_text), NULL, .of = "data.source text", .files = true,
     .text = "the training text: files, of which *.jsonl has a document {\"text\": \"..\"} in each line, and folders "
             "with files *.txt and *.jsonl; all together are one sequence of tokens"},
    {"data.test_text", OPT_TEXTS, AT(data.test_text), NULL, .of = "data.source text", .files = true,
     .text = "the test text, like data.train_text"},
    {"data.train_jsonl", OPT_TEXTS, AT(data.train_jsonl), NULL, .of = "data.source jsonl", .files = true,
     .text = "files with a training record in each line: {\"messages\": [..]}, {\"prompt\": \"..\", "
             "\"completion\": \"..\"}, {\"text\": \"..\"} or {\"input_ids\": [..], \"labels\": [..]}, of which -100 "
             "does not count"},
    {"data.test_jsonl", OPT_TEXTS, AT(data.test_jsonl), NULL, .of = "data.source jsonl", .files = true,
     .text = "files with the test records"},
    {"data.packing", OPT_ENUM, AT(data.packing), "none", .words = WORDS_PACKING(WORD_TEXT), .of = "data.source jsonl",
     .bits = true,
     .text = "none: a sample is a record; first_fit: as many records as fit, which do not see each other, put together "
             "anew in each epoch; then train.last_batch is fill"},
    {"data.too_long", OPT_ENUM, AT(data.too_long), "error", .words = WORDS_TOO_LONG(WORD_TEXT),
     .of = "data.source jsonl", .bits = true,
     .text = "records longer than model.input and one token: error, status 65; cut keeps their beginning; skip"},
    {"data.chat", OPT_FILE, AT(data.chat), NULL, .of = "data.source jsonl", .bits = true,
     .text = "template of messages: chatml, llama3, llama2, zephyr, plain, or a file, see LANGUAGE MODELS; what the "
             "assistant says and the token that ends it count"},
    {"data.train_tokens", OPT_TEXTS, AT(data.train_tokens), NULL, .of = "data.source tokens", .files = true,
     .text = "files with the training tokens, one after the other"},
    {"data.test_tokens", OPT_TEXTS, AT(data.test_tokens), NULL, .of = "data.source tokens", .files = true,
     .text = "files with the test tokens"},
    {"data.token_type", OPT_ENUM, AT(data.token_type), "auto", .words = WORDS_TOKEN_TYPE(WORD_TEXT),
     .of = "data.source tokens", .bits = true,
     .text = "numbers of a raw token file; auto: u16 if the vocabulary has at most 65536 tokens, otherwise u32"},
    {"data.documents", OPT_ENUM, AT(data.documents), "joined", .words = WORDS_DOCUMENTS(WORD_TEXT),
     .of = "data.source tokens text", .bits = true,
     .text = "joined: a position sees all before it in its sample; apart: only those of its document"},
    {"data.end_token", OPT_INT, AT(data.end_token), "-1", -1, 1 << 24, .of = "data.source tokens text jsonl",
     .bits = true,
     .text = "the token that ends a document: apart needs it, except for Megatron's files; text and jsonl put it "
             "behind texts and completions, jsonl by default the folder's; generation ends with it. -1: none"},
    {"data.tokenizer", OPT_FILE, AT(data.tokenizer), NULL,
     .text = "of texts: a tokenizer.json, a folder with one, or bytes; the default is that of model.folder, or bytes "
             "if model.vocab_size is 256"},
    {"data.foreground", OPT_REAL, AT(data.foreground), "0.33", 0, 1, .of = "data.source nifti", .bits = true,
     .text = "share of training parts centred on a voxel of a random class other than 0 that the volume has"},
    {"data.flip", OPT_TEXTS, AT(data.flip), NULL, .of = "data.source nifti", .bits = true,
     .text = "axes along which training flips every other sample, at random, such as {\"y\", \"z\"}; not x if "
             "labels tell left from right"},
    {"data.folds", OPT_INT, AT(data.folds), "0", 0, 1000, .of = "data.source nifti", .bits = true,
     .text = "number of cross-validation folds of data.train: data.fold is the test set, the others are "
             "trained; 0: none"},
    {"data.fold", OPT_INT, AT(data.fold), "0", 0, 999, .of = "data.source nifti", .bits = true,
     .text = "which fold is the test set; it holds every volume whose position by name, modulo data.folds, is this "
             "number"},
    {"data.cache", OPT_SIZES, AT(data.cache), NULL, 0, BIG, .of = "data.source nifti",
     .text = "memory in each reading process for the volumes of training, and as much for those of tests, after "
             "cropping; if that is too little, the last volume read stays, too. The default is 1GiB"},
    {"data.samples", OPT_INT, AT(data.samples), "0", 0, BIG, .bits = true,
     .text = "number of training samples: the first of a file, evenly spaced ones of a folder; of nifti volumes, "
             "not parts, of jsonl records. 0: all. Synthetic samples repeat after 256 MiB"},
    {"data.test_samples", OPT_INT, AT(data.test_samples), "0", 0, BIG,
     .text = "number of test samples: the first of a file, evenly spaced ones of a folder; of nifti volumes, not "
             "parts. 0: all, and no synthetic ones"},
    {"data.prefetch", OPT_INT, AT(data.prefetch), "2", 1, 4096, .text = "micro-batches read ahead"},
    {"data.workers", OPT_INT, AT(data.workers), "1", 0, 256,
     .text = "threads per rank that read and decode ahead; at most the samples of data.prefetch micro-batches are "
             "useful. 0: the rank reads itself. They use cores of the launcher without a rank, or else the rank's "
             "own"},
